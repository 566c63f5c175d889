"""The face of the kernel `_bounds` is a part of the cursor's: see _cursor.pyi."""
