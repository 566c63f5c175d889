"""Start positions of consumers; some must be searched for on the disk, off the loop.

Requests to the handle of a consumer that is being opened (CREDIT behind READ, say, or the request
to close it) keeps its order: the connection stops before that frame, and goes on when the consumer is open or
refused. Anything else goes on meanwhile, so that answers may come in another order than their requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.native.codec import frames, kinds
from penstock.protocols.native.codec.errors import RequestError, unread_disk
from penstock.router.queues.backfill import find_position
from penstock.router.queues.start_position import parse_since

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.protocols.native.session.session import Session

__all__ = ["Opening", "Wants"]

_SEARCHES_MAX: Final = 100
"""Places that are looked for at once for one connection: a place takes a thread that others need,
too, and whoever wants an exclusive place waits up to seconds for its holder's answer."""

Wants = Callable[[int], Sequence[tuple["Feed", int]]]
"""The entries of feeds that are to be in memory for a position; see `Log.when_indexed`."""
Opens = Callable[[int, Callable[[], None]], None]
"""Opens a consumer at a position; calls what it gets besides when it has, or will not. Or it raises."""


class Opening:
    """The places that are looked for, for one connection."""

    def __init__(self, session: Session, go_on: Callable[[], None]) -> None:
        """`go_on` is called when frames that waited in front of the codec may be handled."""
        self._session = session
        self._go_on = go_on
        self._searches = 0

    def find(self, id: int, start: Any, wants: Wants, action: Callable[[int], None]) -> None:
        """Call `action` with the position that `start` names, at once or when it is found.

        `start`: "earliest", "latest", or a moment as `router.queues.start_position` knows it. An error
        that `action` raises is the answer to request `id`. Raises RequestError: it names nothing, or too
        many are looked for.
        """

        def failed(error: PenstockError) -> None:
            self._session.answer_error(id, error)

        self._find(start, wants, action, failed)

    def open(self, id: int, handle: int, start: Any, wants: Wants, action: Opens) -> None:
        """The same for a consumer; what comes for its handle waits meanwhile."""
        opening = self._session.codec.opening
        opening.add(handle)

        def opened() -> None:
            opening.discard(handle)
            self._unstall()

        def act(position: int) -> None:
            try:
                action(position, opened)
            except BaseException:
                opened()
                raise

        def failed(error: PenstockError) -> None:
            self._session.answer_error(id, error)
            opened()

        try:
            self._find(start, wants, act, failed)
        except BaseException:
            opened()
            raise

    def _find(
        self,
        start: Any,
        wants: Wants,
        action: Callable[[int], None],
        failed: Callable[[PenstockError], None],
    ) -> None:
        session, log = self._session, self._session.log
        now_ms = log.now_ms()
        since = None if start in ("earliest", "latest") else parse_since(start, now_ms)
        if since is None and start not in ("earliest", "latest"):
            raise RequestError(
                "bad_field",
                f"start cannot be {str(start)[:100]!r}",
                remedy='it is "earliest", "latest", "pos:NUMBER", "-1h" (an hour ago), or a time: RFC 3339 '
                "with its zone, or milliseconds since the epoch",
            )
        self.begin_search()

        def found(position: int | None) -> None:
            if position is not None:
                log.when_indexed(wants(position), lambda: there(position))
                return
            self.end_search()
            if session.running:
                failed(unread_disk())

        def there(position: int) -> None:
            self.end_search()
            if not session.running:
                return
            try:
                action(position)
            except PenstockError as error:
                failed(error)

        if since is not None:
            find_position(log, session.vhost.lp, since, found)
        else:
            found(log.appender.next_lsn if start == "latest" else 1)

    def begin_search(self) -> None:
        """One more place is looked for. Raises RequestError: there are too many."""
        if self._searches >= _SEARCHES_MAX:
            raise RequestError(
                "busy",
                f"{_SEARCHES_MAX} requests of this connection already wait for a search",
                remedy="wait for answers",
            )
        self._searches += 1

    def end_search(self) -> None:
        """It was found, or not."""
        self._searches -= 1

    # Frames that wait

    def must_wait(self, kind: int, id: int, payload: bytes) -> bool:
        """Whether a frame is for a handle that is being opened."""
        opening = self._session.codec.opening
        if kind != kinds.REQUEST:
            return kind in (kinds.ACK, kinds.NACK, kinds.CREDIT, kinds.PULL) and id in opening
        try:
            return frames.decode(payload).any("handle") in opening
        except (PenstockError, TypeError):  # it is refused when it is handled
            return False

    def _unstall(self) -> None:
        codec = self._session.codec
        if codec.stalled:
            codec.stalled = False
            if self._session.running:
                codec.halted = False
                self._go_on()
