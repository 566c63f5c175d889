"""The port through which a session reaches its connection; the endpoint implements it, and the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.protocols.net.outbuffer import OutBuffer
    from penstock.router.authentication.users import ScramLogin
    from penstock.router.authorization.identity import Identity
    from penstock.router.authorization.permissions import TopicOperation
    from penstock.subscriptions.tick._tick import Sink

__all__ = ["Host"]


class Host(Protocol):
    """The connection, as a session needs it."""

    @property
    def out(self) -> OutBuffer:
        """The output that is sent at the end of the tick."""

    @property
    def name(self) -> str:
        """The connection's, as RabbitMQ has such names."""

    @property
    def sink(self) -> Sink:
        """The connection itself, for kernels: its `output_capacity` and `flush` are the ones below."""

    def dirty(self) -> None:
        """`out` has something, or the log has: have a turn run."""

    def flush(self) -> None:
        """Send `out` now."""

    def await_written(self, lsn: int) -> None:
        """Have `durable` called when everything up to `lsn` is written."""

    def await_synced(self, lsn: int) -> None:
        """The same for synced."""

    def output_capacity(self) -> int:
        """Bytes that may be encoded now; 0 = wait for `writable`."""

    def pause_reading(self, reason: str) -> None:
        """Stop reading until `resume_reading`."""

    def resume_reading(self, reason: str) -> None:
        """Go on reading."""

    def login(self, user_name: str | None, password: bytes | None) -> None:
        """Verify, then call `logged_in` or `refused`. Nothing is read meanwhile."""

    def hand_over(self, worker: int, reads: Sequence[bytes]) -> None:
        """Another worker serves the client, who sent this so far; the session hears no more of it."""

    def ask(self, identity: Identity, operation: TopicOperation, topics: list[str]) -> bool:
        """Whether it takes time to decide about these: then nothing is read until `Session.decided`."""

    @property
    def local(self) -> bool:
        """Rules about loopback hold for the peer."""

    @property
    def is_link(self) -> bool:
        """The peer is a link of the gateway itself: it gets as many messages at a time as it asks for."""

    def pause(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` so much later, if the connection is still there. Nothing is read meanwhile."""

    def scram(self) -> ScramLogin:
        """A login by SCRAM that begins with the client's next message."""

    def opened(self, user: str, client_id: str, version: int) -> None:
        """The client is connected."""

    def end(self, reason: str) -> None:
        """Send what is in `out`, then close."""
