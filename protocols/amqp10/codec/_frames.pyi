"""Frames that kernels write; see `_frames.pyx`. Only for other kernels."""
