"""The face of the kernel `_runs`; how it works stands in _runs.pyx."""

def forget_runs() -> None:
    """Let go of the encoded runs that sessions share."""
