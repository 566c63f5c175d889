"""Frames of class basic; see `_frames.pyx`. Only for other kernels."""
