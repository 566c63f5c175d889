"""Producers that number their messages over HTTP: what is sent again is appended once.

    POST .../producers                   {"name": P}: its epoch, which fences off all before it
    Penstock-Producer: P                 of a publish, beside
    Penstock-Epoch: E                    the epoch it was given, and
    Penstock-Sequence: N                 the number of the request's first message; the next request goes on
                                         behind its last one. Each epoch begins with 0

A request that is numbered is one atomic unit, kept as a whole or refused as a whole, so that numbers have no
gaps. Sent again, it has the ids of then as far as its producer's last five requests are known, and says in
any case that it is a duplicate. A name is its user's in the vhost, and no other protocol's.

Source: `log_core.producers`, the rule for batches; Kafka's KIP-98 has the same.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.errors import OutOfSequence, ProducerFenced
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.data.publishing.destinations import Ready, Run
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import check_fields, optional_object
from penstock.router.rows import ProducerName, producer_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Number", "NumberedProducers"]

_NAME_MAX: Final = 255
_NUMBERS: Final = 2**31
"""Of messages: they begin again at 0 behind the last one."""
_HEADERS: Final = frozenset({"penstock-producer", "penstock-epoch", "penstock-sequence"})


@dataclass(frozen=True, slots=True)
class Number:
    """Whose a request is, and the number of its first message."""

    producer: str
    name: ProducerName
    epoch: int
    first: int


class NumberedProducers:
    """The handler, and what a publish asks."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._producers = access.broker.log.producers

    async def begin(self, request: Request) -> Response:
        """A producer begins, or begins again."""
        body = await optional_object(request)
        vhost, identity = self._access.vhost(request), self._access.identity(request)
        check_fields(body, ("name",))
        name = _checked(body.get("name", secrets.token_hex(12)), "name")
        known_as = _known_as(vhost.name, identity.username, name)
        epoch, lsn = self._producers.begin(known_as.key, label=known_as.label)
        await self._access.kept(lsn, "fsync")
        return json_response({"name": name, "epoch": epoch, "next_sequence": 0}, 201)

    def number_of(self, request: Request, vhost: str, user: str) -> Number | None:
        """The producer and number in the headers; None: it is not numbered. Raises HttpError 400."""
        if _HEADERS.isdisjoint(request.headers):
            return None
        get = request.headers.get
        name, epoch, first = get("penstock-producer"), get("penstock-epoch"), get("penstock-sequence")
        if name is None or epoch is None or first is None:
            raise HttpError(
                400, "bad_field", "Penstock-Producer, Penstock-Epoch and Penstock-Sequence come together"
            )
        if "idempotency-key" in request.headers:
            raise HttpError(
                400,
                "bad_field",
                "Idempotency-Key: a numbered request happens once without it",
            )
        name = _checked(name, "Penstock-Producer")
        numbers = _whole(epoch, "Penstock-Epoch"), _whole(first, "Penstock-Sequence")
        return Number(name, _known_as(vhost, user, name), *numbers)

    def append(
        self, number: Number, messages: Sequence[Ready]
    ) -> tuple[list[tuple[int, bool | None]], int, bool]:
        """Append a request.

        Returns:
            The LSN of each message (0: unknown) and whether a queue gets it (None: unknown; of a request that
            came again, whether one would get it now), the LSN to wait for, whether the request came again.

        Raises:
            HttpError: 409, it is fenced off, or messages before it are missing; what its messages are refused
                with: nothing was kept.

        """
        producers, count, name = self._producers, len(messages), number.name
        last = (number.first + count - 1) % _NUMBERS
        if number.epoch > producers.epoch_of(name.key):
            raise HttpError(
                409,
                "unknown_producer",
                f"producer '{number.producer}' was not given epoch {number.epoch}, or is forgotten: POST "
                "producers, and begin with 0 in the epoch that it answers",
            )
        try:
            known = producers.admit_batch(name.key, number.epoch, number.first, last)
        except ProducerFenced as error:
            raise HttpError(
                409,
                "fenced",
                f"producer '{number.producer}' has begun again with epoch {error.current}, after "
                f"{number.epoch}: another process sends by this name",
            ) from error
        except OutOfSequence as error:
            known = producers.repeated(name.key, number.epoch, last)
            if not known:
                raise HttpError(
                    409,
                    "out_of_order_sequence",
                    f"producer '{number.producer}' sent {number.first} and the next is {error.expected}: "
                    "send what is missing first",
                ) from error
            return [(0, None)] * count, known, True
        if known:
            # They were appended one after the other; what waits until it is due has no id of its own.
            plain = not any(message.waits for message in messages)
            again: list[tuple[int, bool | None]] = [
                (known + at, _is_routed(message)) if plain else (0, None)
                for at, message in enumerate(messages)
            ]
            return again, known + count - 1, True
        run = Run(self._access.broker, messages)
        run.check()
        producers.open()
        try:
            lsns = run.append()
            producers.note(name.key, number.first, last, lsns[0], epoch=number.epoch, label=name.label)
        finally:
            producers.close()
        return list(zip(lsns, run.routed, strict=True)), max(lsns), False


def _is_routed(message: Ready) -> bool:
    try:
        return message.route().routed
    except HttpError:
        return False


def _known_as(vhost: str, user: str, name: str) -> ProducerName:
    return producer_name("http", vhost, user, name)


def _checked(name: Any, field: str) -> str:
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "surrogatepass")) <= _NAME_MAX:
        raise HttpError(400, "bad_field", f"{field}: a text of 1 to {_NAME_MAX} bytes")
    return name


def _whole(text: str, field: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < _NUMBERS):
        raise HttpError(400, "bad_field", f"{field}: a whole number from 0 to {_NUMBERS - 1}")
    return int(text)
