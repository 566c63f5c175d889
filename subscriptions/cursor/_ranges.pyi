"""The kernel `_runs` has no face for Python: its user is the cursor; see _runs.pyx."""
