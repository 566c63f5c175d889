"""Records as messages of AMQP 1.0. See `_delivering.pyx`."""

def delivered(
    key: bytes,
    block: bytes,
    body: bytes,
    *,
    sections: bool = False,
    delivery_count: int = 0,
    acquired: int | None = None,
    counts: bool = False,
    ttl_ms: int | None = None,
    offset: int | None = None,
) -> bytes | None:
    """`translate.amqp10_from_stored`, or None: that is to look at the record; for tests."""
