"""Blocks: runs of batches of a sealed segment, compressed together with zstd."""

from typing_extensions import Buffer

from penstock.log_core.batch._batch import Batch

def contents(data: Buffer) -> list[Batch]:
    """The batches of the block at the start of `data`. Raises ValueError: it is damaged, or none."""

def pack(data: bytes, level: int) -> list[tuple[bytes, int, int]]:
    """Whole batches, in pieces that can be read by themselves, in order.

    Args:
        data: Valid batches of records, back to back.
        level: Of zstd, 1 to 19: a piece is a block of about 256 KiB, or what does not get an eighth smaller
            as it is. 0: pieces of about 64 KiB as they are.

    Returns:
        Each piece with the LSN it begins with and the largest time (ms since 1970) up to its first batch.

    """
