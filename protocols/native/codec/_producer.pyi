"""The producing side of the native protocol. The layouts of frames and the rules stand in `_producer.pyx`."""

class Producer:
    """A handle of the peer to publish by."""

    id: int
    key: bytes
    """The key block of its records."""
    name: bytes
    """Its name in the log, whole; empty: it has none."""
    epoch: int
    def __init__(self, id: int, key: bytes, name: bytes, epoch: int) -> None: ...

def split_records(records: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """(properties, body) of each of `count` checked records."""

CHECKS: tuple[str, ...]
"""Results of the check of a batch, by number."""
