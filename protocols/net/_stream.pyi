"""The moving half of a connection: reading and writing. The module text is in _stream.pyx."""

import asyncio

from penstock.protocols.net._poller import Watched
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.subscriptions.tick._tick import Sink, TickBase

ARENA: bytearray
"""Where all connections of the process read into; valid only inside one `received` call."""

class QuickReader:
    """Handles an ordinary read without a call into Python. Front ends derive theirs in C."""

    want: int
    """Whole size of the incomplete packet in front of what the last scan left; 0 = not known."""

    @property
    def answers(self) -> bool:
        """Of what the last read brought, some is to be answered: then `Stream.answer` is called."""

    def try_read(self, data: bytes | bytearray) -> int:
        """The result of a stream's read, for tests: bytes done with, or -1: `received` has to do it all."""

class Wire(Watched):
    """A transport that is a socket, or a layer on one; to send needs no call into Python."""

    def send(self, data: bytes) -> int:
        """Send what is taken now, keep the rest; `data` is not copied. Returns 0."""

class Stream(Sink):
    """The path of bytes of one connection; `Connection` derives from it and has the rules."""

    want: int
    """Whole size of the incomplete packet in front of the leftover; 0 = not known or fits the arena."""
    bytes_in: int
    bytes_out: int
    reads: int
    """Reads from the socket."""
    writes: int
    """Runs of output given to the transport."""
    last_read_at: float
    """Loop time of the last bytes in (heartbeats)."""
    last_write_at: float
    writable: bool
    """False while the transport holds more than the high-water mark."""
    closing: bool
    """No more input is handled: close() or abort() was called, or the peer went away."""
    trusted: bool
    """The peer has proved who it is, so its bytes are not counted any more; it may not be open yet."""
    quick: QuickReader | None
    """Is asked first when something was read; None = `received` handles all."""
    output_mark: int
    """High-water mark of the output, in bytes."""
    throttled: bool
    """Somebody was told that there is no room, and waits for `on_writable`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: TickBase, output_mark: int) -> None: ...
    @property
    def out(self) -> OutBuffer:
        """Output of this tick."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """None before `attach`."""
    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it lives on."""
    def attach(self, transport: asyncio.Transport) -> None:
        """The transport is there."""

    def detach(self) -> None:
        """It is not used any more."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport reads into next: the arena, or the buffer of a large packet."""
    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read there; handles all that is whole."""
    def handle_rest(self) -> None:
        """Call `received` again with what it left, without waiting for more from the peer."""

    def drop_input(self) -> None:
        """Forget what was read and not handled."""

    def drop_input_buffer(self) -> None:
        """Give up an empty buffer that is kept for the next large packet."""

    def disk_is_less_busy(self) -> None:
        """Read on, after much was sent while the disk was busy."""

    def input_bytes(self) -> int:
        """Bytes of input that is not complete."""

    def input_buffer_bytes(self) -> int:
        """Bytes of memory that input takes."""

    def dirty(self) -> None:
        """Have `flush` called at the end of this tick."""

    def flush(self) -> None:
        """Give `out` to the transport."""

    def output_capacity(self) -> int:
        """Bytes a consumer may still encode in this tick; 0 = wait for `on_writable`."""
