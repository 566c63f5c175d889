"""Keys of rows: digests of what names a thing. The module text is in _row_keys.pyx."""

def row_key(*parts: str | bytes) -> bytes:
    """The key of the row of the thing with these names, 16 bytes."""

def row_part(name: bytes) -> bytes:
    """One of the names, as a row's key is made of them."""

def digest_of(parts: bytes) -> bytes:
    """The key of the row of the thing with these names, which are parts one behind the other."""
