"""Makes of what one broker sends what a bridge sends the other one: a read at a time. See `_relay.pyx`."""

from collections.abc import Callable

from typing_extensions import Buffer

class InFlight:
    """The messages of QoS 1 and 2 that one broker got from the bridge and has not answered for good."""

    most: int
    """As many as there may be: half of what the broker takes, or one."""
    count: int

    def __init__(self, receive_maximum: int) -> None:
        """`receive_maximum`: messages that the broker takes at a time."""

class Relay:
    """From one broker, the source, to the other one."""

    out: bytes
    """The packets for the target that came of the last `take`."""
    answers: bytes
    """The packets for the source: answers to messages that do not cross, and messages that were held."""
    forwarded: int
    """Messages of the last `take` that the broker behind them has: those of QoS 0, and answers."""
    unnamed: int
    """Messages of the last `take` that no topic lets pass."""
    too_large: int
    """Messages of the last `take` that are larger than the target takes."""
    reasons: list[int]
    """Why the source refused messages, in the last `take`."""
    ended: int
    """The reason of the DISCONNECT of the source; -1: it sent none."""

    def __init__(
        self,
        source: InFlight,
        target: InFlight,
        *,
        from_5: bool,
        to_5: bool,
        name_of: Callable[[str], str | None],
        keeps_retain: bool,
        most: int,
    ) -> None:
        """A relay of two connections that are open.

        Args:
            source: Of the source, as the relay of the other direction has it as target.
            target: Of the target, likewise.
            from_5: Whether the source speaks MQTT 5.
            to_5: Whether the target does.
            name_of: From a topic of the source to its name at the target. None: it does not cross.
            keeps_retain: Whether messages stay retained.
            most: Bytes of a packet that the target takes.

        """

    def take(self, data: Buffer) -> int:
        """Take the whole packets; how many bytes were used. The others belong in front of the next bytes.

        Raises:
            ValueError: they are no packets of MQTT.

        """
