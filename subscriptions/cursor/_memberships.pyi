"""The kernel `_members` has no face for Python: its user is the cursor; see _members.pyx."""
