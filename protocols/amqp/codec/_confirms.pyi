"""Publisher confirms of one channel; see `_confirms.pyx`."""

from penstock.protocols.net.outbuffer import OutBuffer

class Confirms:
    """The publishes of a confirming channel that are not confirmed yet."""

    number: int
    """Of the channel."""
    out: OutBuffer
    confirming: bool
    published_seq: int
    """Number of the last publish; 0 before the first."""
    confirmed_seq: int
    """Every publish up to here is confirmed."""

    def confirm_select(self) -> None:
        """Number publishes from now on. Idempotent."""

    def confirm(self, written: int, synced: int) -> bool:
        """Encode the ack of every publish that is there now; True when there was one."""

    def refuse_all(self) -> bool:
        """Encode a nack for every publish that is not confirmed; True when there was one."""

    @property
    def unconfirmed(self) -> int:
        """Publishes that were not confirmed yet."""
