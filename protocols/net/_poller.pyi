"""The sockets of one loop. The module text is in _poller.pyx."""

import asyncio

from penstock.protocols.net._moderation import Moderation
from penstock.subscriptions.tick._tick import Gathering

class Watched:
    """The entry of a socket; transports derive theirs in C."""

class Poller(Gathering):
    """Watches sockets for one loop, level triggered. Made by `poller_of`."""

    rounds: int
    """Looks at the sockets."""
    direct: list[Watched]
    """The sockets that the loop watches itself."""
    moderation: Moderation
    """The waits for more sockets before a round."""
    reads: int
    """Sockets that were ready, in all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def poll(self) -> None:
        """Handle all sockets that are ready, and then run the turns that they asked for.

        Called by the loop.
        """

def poller_of(loop: asyncio.AbstractEventLoop) -> Poller:
    """The one of that loop, which is made when it is asked for first."""
