"""The unsettled messages of a consumer, by tag. Kernels use `_held.pxd`, tests what is here."""

class Held:
    first: int
    """The oldest tag that has a place; what is older is settled, or aside."""
    next: int
    """The tag of the next delivery."""
    unacked: int
    """Deliveries that are out."""
    unacked_aside: int
    """Those of them that are set aside."""
    def deliver(self, count: int) -> int:
        """So many more are out; the tag of the first."""
    def settle(self, first: int, last: int) -> int:
        """Those with tags in [first, last] are settled; how many were out."""
    def out(self, first: int, last: int) -> list[int]:
        """The tags in [first, last] that are out."""
    @property
    def places(self) -> int:
        """That memory is held for, of 24 or 32 bytes."""
