"""User properties of packets that Python reads; how it works stands in _pairs.pyx."""

def read_pairs(data: bytes, at: int, end: int, into: list[tuple[str, str]]) -> int:
    """Read user properties back to back from `at`, each with its identifier, into the list.

    Returns the position of the first other property, or `end`; -1: a text does not end before `end`; -2: a
    text is no UTF-8, or has U+0000 in it. Raises ValueError if [at, end) is not inside the data.
    """
