"""The kernel `_counting` has no face for Python: its user is the cursor; see _counting.pyx."""
