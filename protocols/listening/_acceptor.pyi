"""The acceptor of a listener. The module text is in _acceptor.pyx."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.protocols.net._lifecycle import Life
from penstock.protocols.net.admitting.admission import Admission
from penstock.protocols.net.connection import Connection
from penstock.protocols.net.connection_info import Totals

TAKEN_PER_TURN: int
"""With so many something is begun before the loop does something else."""

class Acceptor:
    """A part of `Listener`, which derives from it."""

    connections: Final[set[Connection]]
    """Every connection that is not lost yet."""
    gone: Final[dict[str, Totals]]
    """Totals of lost connections, by `Connection.spoken`."""
    gone_bytes_in: int
    gone_bytes_out: int
    opened: int
    """Connections ever accepted."""
    closed: int
    """Connections ever lost."""
    _came: Final[deque[tuple[int, str, int]]]
    _empty: asyncio.Event
    _admission: Admission
    _backpressure: bool
    _full: frozenset[str]
    _max: int
    _is_open: bool

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        admission: Admission,
        factory: Callable[[], Connection],
        place: tuple[str, str],
        reached_at: tuple[str, int] | None,
        layered: Callable[[Connection], object] | None,
    ) -> None:
        """`reached_at`: the address that every peer connects to; None: not all to the same. `layered` puts
        layers between a socket and its connection; None: there are none.
        """

    def take_some(self) -> None:
        """Begin with those who came, some of them: others have said something meanwhile."""

    def take(self, fd: int, host: str, port: int) -> None:
        """Go on with a socket that was accepted, where not everybody is let in. `Listener`'s."""

    def let_in(self, accepted: int, host: str, port: int, *, proxied: bool = False) -> None:
        """Serve the peer of a connected socket, which is given as its descriptor."""

    def meet(self, host: str, port: int, *, foreign: bool) -> Connection:
        """A connection of this peer, which is counted, and has no transport yet."""

    def refuse(self, accepted: int, option: str) -> None:
        """Close a socket because of a limit. `Listener`'s."""

    def _lost(self, connection: Life) -> None: ...
