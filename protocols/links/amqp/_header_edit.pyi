"""Changes the headers of messages on their way through a link. See `_header_edit.pyx`."""

from collections.abc import Mapping

class HeaderEdit:
    """A change of the frames of content headers. All else in them keeps its bytes and types."""

    def __init__(
        self,
        *,
        frame_max: int,
        end: str,
        properties: Mapping[int, bytes] | None = None,
        removes_user_id: bool = False,
        array: bytes | None = None,
        firsts: tuple[bytes, bytes] | None = None,
        here: tuple[bytes, bytes] | None = None,
        max_hops: int = 0,
        visited: tuple[bytes, bytes] | None = None,
        stamp: bytes | None = None,
        lowers_copies: bool = False,
    ) -> None:
        """An edit.

        Args:
            frame_max: The largest frame that the target takes, in bytes.
            end: The name of the target, for errors.
            properties: In place of the message's own, as `header.encoded` makes them.
            removes_user_id: Whether the property user-id goes.
            array: The name of a header that is an array, or becomes one.
            firsts: Its new first element, as `header.element` makes it: for a message that comes the first
                time, and for one that comes again.
            here: Name of a cluster, and vhost. A message whose array has a table with them does not pass.
            max_hops: With `here`: a message whose array has so many elements does not pass.
            visited: URI and queue. The array's tables with them go. Their visit-count is added to that of the
                first element, whose last eight bytes it is.
            stamp: The name of a header that is set to the time, in ms since the epoch.
            lowers_copies: Whether the headers CC and BCC become cc and bcc, which route nothing.

        Raises:
            ValueError: headers among the properties are no table, or an argument is not as it says.

        """
    def changed(self, frame: bytes, redelivered: bool) -> bytes | None:
        """The frame in place of this one; None: the message does not pass.

        Raises:
            ValueError: the frame is damaged.
            LinkError: the changed one is larger than the target takes.

        """
