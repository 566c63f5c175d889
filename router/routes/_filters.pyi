"""The face of the kernel `_filters`; how the trie is kept stands in _filters.pyx."""

from collections.abc import Callable
from typing import Generic, TypeVar

P = TypeVar("P")

class SlashedTrie(Generic[P]):
    """MQTT topic filters: `+` one level, `#` the parent level and all below.

    A filter is added with a payload that the caller owns, and has one. A match answers the payloads, each
    once per filter that it was added under. A filter that begins with a wildcard does not match a topic that
    begins with `$`. mqtt5:4.7
    """

    nodes: int
    """Levels that it holds, those that filters begin with alike once."""

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """How many filters it holds."""

    def __sizeof__(self) -> int:
        """Bytes of all nodes, without the payloads."""

    def add(self, pattern: bytes, make: Callable[[], P]) -> P:
        """The payload of `pattern`, made by `make` when the filter is new.

        Raises:
            InvalidPattern: It has more than `WORDS_MAX` levels; nothing was added.

        """

    def setdefault(self, pattern: bytes, payload: P) -> P:
        """The payload of `pattern`, `payload` when it is new. Raises InvalidPattern as `add`."""

    def put(self, pattern: bytes, payload: P) -> None:
        """Set the payload of `pattern`, new or not. Raises InvalidPattern as `add`."""

    def get(self, pattern: bytes) -> P | None:
        """The payload of exactly this filter, None when it was not added."""

    def remove(self, pattern: bytes) -> P | None:
        """Take the filter out, with the nodes that only it needed; its payload, None when it was not in."""

    def match(self, topic: bytes) -> list[P]:
        """The payloads of the filters that match the topic name, in no order."""
