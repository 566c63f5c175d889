"""Batches to and from files: one gathered write per tick, one positioned read per cold read. And names."""

from penstock.log_core.batch._batch import Batch

def exchange(one: bytes, other: bytes) -> bool:
    """Have two files exchange their names at once; False: one of them is missing, or the system cannot.

    Raises OSError.
    """

def write_batches(fd: int, batches: list[Batch], offset: int, skip: int = 0) -> int:
    """Write `batches` back to back at `offset`, without their first `skip` bytes; the bytes written.

    One `pwritev` for up to 512 batches. Fewer bytes than asked for means that the file system took no
    more; raises OSError when it took none. The interpreter lock is released for larger writes.
    """

def read_batches(
    fd: int, offset: int, end: int, want: int, from_lsn: int
) -> tuple[list[Batch], tuple[int, str, int, int] | None]:
    """Read about `want` bytes of batches from `offset` on, at most to `end`.

    Only batches of records that reach `from_lsn` are returned, and reading goes on until there is one.
    Returns them and None, or what came before damage and (file offset, reason, expected CRC, found CRC).
    Raises OSError.
    """
