"""When a thread beside the loop works, and when it rests."""

from typing import final

@final
class Pace:
    """Of one piece of work. Kernels tell it how much they did; it rests for them."""

    rests: int
    """How often it rested."""
    stopped: bool
    """The work is to end."""

    def stop(self) -> None:
        """End the work, from any thread; rests are no longer taken."""
