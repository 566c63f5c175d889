"""Fields of log lines as text."""

from collections.abc import Callable

def pairs(values: dict[str, object], short: int, other: Callable[[object], str]) -> str:
    """` key=value` of each.

    Args:
        values: By key.
        short: A text of at most so many characters stands as it is, if it is plain: ASCII without blanks,
            quotes, equals signs and control characters.
        other: The text of any other value that is no int.

    """
