"""The face of the kernel `_take_result`. Encoders cimport TAKEN and read its items; Python has the cursor."""

def release() -> None:
    """Let go of the batches of the last take: its items are invalid from here on.

    The tick calls it when all queues are served.
    """
