"""Properties blocks taken apart, for the kernel `_columns`; nothing of it is for Python."""
