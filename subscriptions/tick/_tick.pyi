"""One turn of the event loop: write, hand out, confirm, flush. The module text is in _tick.pyx."""

from collections.abc import Callable
from typing import Any

from penstock.log_core.wal._waiters import Awaiting
from penstock.subscriptions.tick.tick import Pumped, TickLog

QUICK_EACH_S: float
"""Least time between two reads that have a turn of their own."""
WRITE_WITHIN_S: float
"""In which what came alone is written although nobody waits for that."""

class Gathering:
    """Reads that come together.

    While they are handled, `TickBase.schedule` has the turn run behind the last one.
    """

class Sink(Awaiting):
    """A connection, which has output that a turn sends. Derive from it; C code may override the C methods."""

    def output_capacity(self) -> int:
        """Bytes that may be encoded now; 0 = wait."""

    def flush(self) -> None:
        """Send what was encoded."""

    def answer(self) -> None:
        """The consumers of what was read of this one have it, as far as they could."""

    def writable_again(self) -> None:
        """It had no room, and sent what it had: consumers may go on. At the beginning of a turn."""

class TickBase:
    """The turns of one worker."""

    def __init__(
        self,
        log: TickLog,
        call_soon: Callable[..., Any],
        call_later: Callable[..., Any],
        clock: Callable[[], float],
    ) -> None:
        """`call_soon` and `call_later` are the loop's; `clock` gives seconds and bounds what a turn does."""

    @property
    def turns(self) -> int:
        """Turns that ran, ever."""

    @property
    def held(self) -> bool:
        """Whether nothing is handed out now: the time of `serve_until` is over."""

    def serve_until(self, at: float) -> None:
        """Hand out nothing past `at`, in seconds of the tick's clock, until a later call moves it."""

    gathering: Gathering | None
    """The reads of the loop's sockets."""

    def schedule(self) -> None:
        """Have a turn run: behind the reads that are being handled together, or in this loop iteration's end.

        Any number of calls make one turn.
        """

    def write_soon(self) -> None:
        """Have a turn run within some milliseconds."""

    def begin_read(self, now: float) -> bool:
        """A small read is about to be handled, at `now` in seconds on any clock that only rises; True: it has
        a turn of its own, so call `run_alone` behind it.

        A lone message then does not wait for the loop to come round, nor for its scheduling. Of gathered
        reads, one that is alone is served so; of others, at most one in QUICK_EACH_S that brought work. All
        others share the turn behind them, which is what makes many of them cheap.
        """

    def run_alone(self, reader: Sink) -> None:
        """The turn of a read of `reader` for which `begin_read` said True: consumers first, then the write;
        that within WRITE_WITHIN_S when nobody waits for it.

        A message that is handed out before it is written is lost only if the process is killed in between,
        and then nobody was told that it is kept.
        """

    def ready(self, queue: Pumped) -> None:
        """Have `queue.pump()` called in the next turn (the running one, if it is not past that)."""

    def dirty_connection(self, connection: Sink) -> None:
        """Have `connection.flush()` called at the end of the next (or running) turn."""

    def run(self) -> None:
        """One turn. Called by the loop; a test may call it."""
