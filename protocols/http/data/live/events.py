"""Events of the gateway for listeners: log lines, attempts of webhooks, the audit trail.

    log        each line, as `server.log_format = "json"` has it; for the tags administrator and monitoring
    audit      each entry of the audit trail; for the tags administrator and auditor
    webhooks   each attempt, as the delivery log has it; those of webhooks that the user may steer

Costs nothing while nobody listens. A slow listener loses the surplus above a mebibyte, and is told how much.
Lines may come from any thread; with several workers they are those of the worker that has the vhost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock import logs
from penstock.protocols.http.audit.handlers import TAGS as AUDITORS
from penstock.protocols.http.server.messages import HttpError, dumps
from penstock.protocols.http.webhooks.belongings import own_queue
from penstock.router.authorization.identity import Identity

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.router.broker import Broker

__all__ = ["KINDS", "EventTail", "Events", "kinds_of"]

KINDS: Final = ("log", "webhooks", "audit")
_PENDING_MAX: Final = 1 << 20
_LISTENERS_MAX: Final = 100
_TAGS: Final = {"log": frozenset({"administrator", "monitoring"}), "audit": AUDITORS}


def kinds_of(text: str) -> frozenset[str]:
    """The kinds in `events=log,webhooks`. Raises HttpError 400."""
    kinds = frozenset(text.split(","))
    if not kinds <= set(KINDS):
        raise HttpError(400, "bad_field", f"events: one or more of {', '.join(KINDS)}, with commas between")
    return kinds


class EventTail:
    """One listener."""

    def __init__(
        self, identity: Identity, vhost: str, kinds: frozenset[str], more: Callable[[], None]
    ) -> None:
        self.identity = identity
        self.vhost = vhost
        self.kinds = kinds
        self.pending: deque[tuple[str, bytes]] = deque()
        self.skipped = 0
        self.ended = ""
        """Why nothing more comes."""
        self.close: Callable[[], None]
        self._more = more
        self._size = 0

    def add(self, kind: str, data: bytes) -> None:
        """One more event."""
        if self._size > _PENDING_MAX:
            self.skipped += 1
        else:
            self.pending.append((kind, data))
            self._size += len(data) + 64
        self._more()

    def take(self) -> tuple[str, bytes] | None:
        """The next one: its kind, and its JSON."""
        if not self.pending:
            return None
        kind, data = self.pending.popleft()
        self._size -= len(data) + 64
        return kind, data

    def cancelled(self, reason: str) -> None:
        """Nothing more comes."""
        self.ended = self.ended or reason
        self._more()


class Events(logging.Handler):
    """All listeners of a gateway; a handler of log lines as long as somebody listens to them."""

    def __init__(self, broker: Broker, webhooks: Webhooks) -> None:
        super().__init__()
        self.setFormatter(logs.as_json())
        self._broker = broker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[EventTail] = []
        webhooks.on_attempt.append(self._attempted)
        broker.audit.on_entry.append(self._audited)

    def check(self, identity: Identity, kinds: frozenset[str]) -> None:
        """Whether the user may listen to these. Raises HttpError 403."""
        for kind in kinds & _TAGS.keys():
            if _TAGS[kind].isdisjoint(self._tags(identity)):
                wanted = " and ".join(sorted(_TAGS[kind]))
                raise HttpError(403, "access_refused", f"events: {kind} is for the tags {wanted}")

    def _tags(self, identity: Identity) -> frozenset[str]:
        """Those of now; of who is no user of ours, those of the login."""
        known = self._broker.users.identity(identity.username)
        return identity.tags if known is None else known.tags

    def listen(
        self, identity: Identity, vhost: str, kinds: frozenset[str], more: Callable[[], None]
    ) -> EventTail:
        """Listen from now on, until `close`. Raises HttpError 403, 503."""
        self.check(identity, kinds)
        if len(self._listeners) >= _LISTENERS_MAX:
            raise HttpError(
                503, "too_many_tails", f"there are {_LISTENERS_MAX} tails of events already", retry_after_s=60
            )
        tail = EventTail(identity, vhost, kinds, more)

        def close() -> None:
            if tail in self._listeners:
                self._listeners.remove(tail)
                self._attach()

        tail.close = close
        self._listeners.append(tail)
        self._attach()
        return tail

    def _attach(self) -> None:
        root, wanted = logging.getLogger(), any("log" in one.kinds for one in self._listeners)
        if wanted and self not in root.handlers:
            self._loop = asyncio.get_running_loop()
            root.addHandler(self)
        elif not wanted:
            root.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """A log line, in whatever thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._logged, self.format(record).encode("utf-8", "replace"))

    def _logged(self, line: bytes) -> None:
        self._tell("log", line)

    def _tell(self, kind: str, data: bytes) -> None:
        for one in list(self._listeners):
            if kind in one.kinds and not _TAGS[kind].isdisjoint(self._tags(one.identity)):
                one.add(kind, data)

    def _audited(self, entry: dict[str, Any]) -> None:
        if self._listeners:
            self._tell("audit", dumps(entry))

    def _attempted(self, vhost: str, name: str, entry: dict[str, Any]) -> None:
        allow, data = self._broker.authorizer.allow, b""
        for one in self._listeners:
            if "webhooks" not in one.kinds or one.vhost != vhost:
                continue
            if allow(one.identity, vhost, "configure", own_queue(name)):
                data = data or dumps(entry)
                one.add("webhooks", data)
