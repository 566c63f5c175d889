"""The kernel `_state` has no face for Python: its user is the cursor; see _state.pyx."""
