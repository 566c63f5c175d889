"""The face of the kernel `_window`, whose users are other kernels; see _window.pyx."""

def set_ring_kept(places: int) -> int:
    """For tests: the ring size (a power of two) from which on stragglers are set aside; the one before."""
