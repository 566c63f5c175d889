"""Composes the messages of one producer: bodies and properties, and when they are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from penstock.sdk.checking import number, text
from penstock.sdk.message import PLAIN, properties_block
from penstock.sdk.schema import body_of

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.sdk.schema import Codec
    from penstock.sdk.tracing import Tracing

__all__ = ["Composer", "delay_name", "due_ms"]

_TTL_MAX_S: Final = (2**32 - 1) // 1000
_LATEST_S: Final = 10**11
"""Beyond any horizon."""
_DELAY_ID_MAX: Final = 255
_NO_SPAN: Final = nullcontext()


class Composer:
    """How values are encoded, keyed and traced."""

    def __init__(
        self,
        place: str,
        codec: Codec[Any] | None,
        key: Callable[[Any], bytes | str | None] | None,
        tracing: Tracing | None,
        user: Callable[[], str],
    ) -> None:
        """`place`: where they go, in words, as spans have it; `user`: who is logged in.

        Raises TypeError: `key` is no function.
        """
        if key is not None and not callable(key):
            raise TypeError(
                f"a producer's key is a function of what is sent, not {type(key).__name__}; the key of one "
                "message goes with it: send(body, key=...)"
            )
        self._place = place
        self._codec = codec
        self._key = key
        self._tracing = tracing
        self._user = user

    @property
    def is_plain(self) -> bool:
        """Bytes that are sent with nothing besides are sent as they are."""
        return self._codec is None and self._key is None and self._tracing is None

    def message(
        self,
        body: Any,
        key: bytes | str | None,
        headers: Mapping[str, Any] | None,
        ttl_s: float | None,
        persistent: bool,
        properties: Mapping[str, Any],
    ) -> tuple[bytes, bytes]:
        """Body and properties. Raises TypeError, ValueError, what the codec raises."""
        if self._key is not None and key is None:
            key = self._key(body)
        if self._codec is None:
            data = body if type(body) is bytes else body_of(body)
        else:
            data, properties = self._codec.encode(body), self._described(properties)
        if "user_id" in properties and properties["user_id"] != self._user():
            raise ValueError(f"user_id is {self._user()!r}, who is logged in, or left out")
        ttl_ms = None if ttl_s is None else max(int(number("ttl_s", ttl_s, 0, _TTL_MAX_S) * 1000), 1)
        return data, properties_block(key, headers, ttl_ms, persistent, properties)

    def many(self, values: Sequence[Any], key: bytes | str | None) -> tuple[list[bytes], bytes]:
        """Bodies, and the properties that all of them have. Raises as `message`."""
        if isinstance(values, str | bytes):
            raise TypeError(f"send_many sends a list of messages; a message of {type(values).__name__}: send")
        block = PLAIN
        if key is not None or self._codec is not None:
            block = properties_block(key, None, None, True, self._described({}))
        bodies: list[Any] = values if isinstance(values, list) else list(values)
        if self._codec is not None or set(map(type, bodies)) - {bytes}:
            encode = body_of if self._codec is None else self._codec.encode
            bodies = [encode(one) for one in bodies]
        return bodies, block

    def _described(self, properties: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = "" if self._codec is None else self._codec.content_type
        return {"content_type": kind, **properties} if kind else properties

    def traced(
        self, headers: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any] | None, AbstractContextManager[object]]:
        """Headers that a span may put its context into, and the span."""
        if self._tracing is None:
            return headers, _NO_SPAN
        made = dict(headers or {})
        return made, self._tracing.sending(self._place, made)


def due_ms(at: datetime | float | None, after_s: float | None, clock: Callable[[], float]) -> int:
    """When a message is published, since the epoch; 0: at once. Raises TypeError, ValueError."""
    if at is not None and after_s is not None:
        raise ValueError("a message has deliver_at or deliver_after_s, not both")
    if after_s is not None:
        number("deliver_after_s", after_s, -_LATEST_S, _LATEST_S)
        return int((clock() + after_s) * 1000) + 1 if after_s > 0 else 0
    if at is None:
        return 0
    if not isinstance(at, int | float):
        from datetime import datetime

        if not isinstance(at, datetime):
            raise TypeError(f"deliver_at is a datetime or a number of seconds, not {type(at).__name__}")
        if at.tzinfo is None:
            raise ValueError("deliver_at is a datetime with a time zone")
        at = at.timestamp()
    return max(int(number("deliver_at", at, 0, _LATEST_S) * 1000), 1)


def delay_name(delay_id: str | None) -> bytes | None:
    """The name of a delayed message in bytes. Raises TypeError, ValueError."""
    if delay_id is None:
        return None
    name = text("delay_id", delay_id).encode()
    if len(name) > _DELAY_ID_MAX:
        raise ValueError(f"delay_id has 1 to {_DELAY_ID_MAX} bytes, not {len(name)}")
    return name
