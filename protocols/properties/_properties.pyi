"""The properties block of a content header, from its flags on. See `_properties.pyx` for the layout."""

def parse(block: bytes) -> tuple[int, int, int, bytes | None, bool] | None:
    """(delivery mode, priority, ttl in ms, user id, Python must look), None when malformed; for tests."""
