"""Messages of AMQP 1.0 as records have them. See `_storing.pyx`."""

def stored(payload: bytes) -> tuple[bytes, bytes, bool, bool, int, int, bytes | None, int, int] | None:
    """(properties, body, durable, has sections, priority, ttl in ms, user-id, when, delay) of a message.

    None: `translate.stored_from_amqp10` is to look at it, which says whether it is a message at all. A ttl of
    0 stands for none. `when`, in ms since the epoch, and `delay`, in ms from now, are 0 without those
    annotations.
    """
