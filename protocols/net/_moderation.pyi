"""When to wait for more sockets before a round. The module text is in _moderation.pyx."""

class Moderation:
    """The state of one poller. Times are nanoseconds of one clock that only rises."""

    span_ns: int
    """How long a wait is asked to take, below one second; the kernel adds about 50,000. 0: there is none."""

    @property
    def waiting(self) -> bool:
        """Rounds with few ready sockets wait now, on trial or because it pays."""

    def wait_ns(self, ready: int, now: int) -> int:
        """Count a round that finds `ready` sockets, at least 1; returns how long to wait before it, or 0."""

    def waited(self, before: int, after: int, now: int) -> None:
        """Tell that the wait is over: `after` sockets are ready, and `before` were ready before it."""
