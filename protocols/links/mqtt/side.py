"""One end of a bridge: a client's connection of MQTT that gives and takes packets as bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, Self

from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.mqtt._relay import InFlight, Relay
from penstock.protocols.links.mqtt.packets import (
    DISCONNECT,
    PINGREQ,
    Connack,
    decode_connack,
    packet,
    split,
    subscribe,
)
from penstock.protocols.links.stream import Stream
from penstock.protocols.mqtt.codec.packets import CONNACK, PUBCOMP, PUBREL, SUBACK

__all__ = ["Side"]

_LOGIN_S: Final = 30.0
_SUBSCRIBE_ID: Final = 65535
_AT_ONCE: Final = 4096
"""Packets sent before their answers are waited for."""


class Side:
    """See the module. Use it as a context; `open` makes it."""

    def __init__(self, name: str, stream: Stream, *, is_5: bool) -> None:
        """`name`: of the end, for errors."""
        self.name: Final = name
        self.is_5: Final = is_5
        self.connack = Connack(False)
        self._stream = stream
        self._early: list[bytes] = []
        """Packets that came before the answer to SUBSCRIBE."""
        self.in_flight = InFlight(self.connack.receive_maximum)
        """Publishes of this connection that the broker has not answered for good."""
        self._heard_at = asyncio.get_running_loop().time()

    @classmethod
    async def open(
        cls,
        name: str,
        stream: Stream,
        connect: bytes,
        filters: Sequence[tuple[str, int]],
        *,
        is_5: bool,
    ) -> Self:
        """Log in and subscribe.

        Args:
            name: Of the end, for errors.
            stream: To the broker.
            connect: The CONNECT.
            filters: To subscribe to, with their options.
            is_5: Whether MQTT 5 is spoken.

        Raises:
            LinkError: the broker refuses.
            OSError: the connection is lost.

        """
        made = cls(name, stream, is_5=is_5)
        try:
            async with asyncio.timeout(_LOGIN_S):
                made.write(connect)
                first = await made._next(CONNACK)
                made.connack = decode_connack(first, is_5=is_5)
                made.in_flight = InFlight(made.connack.receive_maximum)
                if filters:
                    made.write(subscribe(_SUBSCRIBE_ID, filters, is_5=is_5))
                    made._check(await made._next(SUBACK), filters)
        except LinkError as error:
            made.abort()
            raise type(error)(f"{name}: {error.message}") from None
        except TimeoutError:
            made.abort()
            raise LinkError(f"{name}: no answer within {_LOGIN_S:g} s") from None
        except BaseException:
            made.abort()
            raise
        return made

    async def _next(self, kind: int) -> bytes:
        """The next packet of a kind; others wait for `packets`."""
        while True:
            for at, one in enumerate(self._early):
                if one[0] >> 4 == kind:
                    return self._early.pop(at)
            if kind == CONNACK and self._early:
                raise LinkError("it did not answer with CONNACK")
            self._early += await self._read()

    def _check(self, suback: bytes, filters: Sequence[tuple[str, int]]) -> None:
        reasons = suback[-len(filters) :]
        for (one, _), reason in zip(filters, reasons, strict=True):
            if reason >= 0x80:
                raise LinkError(f"it refuses the subscription to '{one}' (reason {reason:#04x})")

    async def forget_received(self) -> None:
        """Have the broker forget which packet ids of QoS 2 it has received: their messages are gone.

        Raises:
            LinkError: the connection is lost.

        """
        last = _SUBSCRIBE_ID
        for packet_id in range(1, last + 1):
            self.write(packet(PUBREL << 4 | 2, packet_id.to_bytes(2, "big")))
            if packet_id % _AT_ONCE == 0 or packet_id == last:
                await self.drain()
                await self._completed(packet_id % _AT_ONCE or _AT_ONCE)

    async def _completed(self, count: int) -> None:
        """So many PUBCOMPs have come. Other packets wait for `packets`."""
        while count:
            for one in await self._read():
                if one[0] >> 4 == PUBCOMP:
                    count -= 1
                else:
                    self._early.append(one)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Say goodbye, without a will."""
        with contextlib.suppress(OSError, LinkError, TimeoutError):
            self.write(DISCONNECT)
            async with asyncio.timeout(1.0):
                await self._stream.close()
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._stream.abort()

    def write(self, data: bytes) -> None:
        """Send a packet. Raises LinkError: the connection is lost."""
        try:
            self._stream.write(data)
        except OSError as error:
            raise self._lost(error) from None

    async def drain(self) -> None:
        """Wait until the broker takes more. Raises LinkError: the connection is lost."""
        try:
            await self._stream.drain()
        except OSError as error:
            raise self._lost(error) from None

    async def relayed(self, relay: Relay) -> None:
        """Let a relay take the next packets.

        Raises:
            LinkError: the connection is lost, or what came is no MQTT.

        """
        try:
            if self._early:
                relay.take(b"".join(self._early))
                self._early.clear()
            else:
                self._stream.used(relay.take(await self._next_bytes()))
        except ValueError as error:
            raise LinkError(f"{self.name}: {error}") from None

    async def _read(self) -> list[bytes]:
        found, used = split(bytes(await self._next_bytes()))
        self._stream.used(used)
        return found

    async def _next_bytes(self) -> memoryview:
        try:
            data = await self._stream.read()
        except OSError as error:
            raise self._lost(error) from None
        self._heard_at = asyncio.get_running_loop().time()
        return data

    def _lost(self, error: OSError) -> LinkError:
        return LinkError(f"{self.name}: the connection is lost: {error.strerror or error}")

    async def keep_alive(self, interval_s: float) -> None:
        """Send pings for ever. Raises LinkError: the broker is silent."""
        while True:
            await asyncio.sleep(interval_s / 2)
            if asyncio.get_running_loop().time() - self._heard_at > interval_s * 1.5:
                raise LinkError(f"{self.name}: nothing came for {interval_s * 1.5:g} s")
            self.write(PINGREQ)
