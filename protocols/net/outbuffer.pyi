"""The output of a connection. The module text is in outbuffer.pyx."""

from typing_extensions import Buffer

class OutBuffer:
    """A connection's output of one tick, encoded straight into the bytes object that goes to the socket.

    Kernels use `reserve(n)` and `commit(n)` of the .pxd: room for n bytes, then how much of it was used.
    Not thread safe: it belongs to its connection's loop.
    """

    @property
    def size(self) -> int:
        """Bytes committed and not yet taken."""
    def write(self, data: Buffer) -> int:
        """Append a copy of `data`. Returns 0."""
    def take(self) -> bytes:
        """Everything committed, in order; the buffer is empty afterwards. b"" when there is nothing.

        The bytes object is the one that was filled: it belongs to the caller.
        """
    def __len__(self) -> int: ...
