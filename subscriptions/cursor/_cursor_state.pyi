"""The face of the kernel `_standing` is a part of the cursor's: see _cursor.pyi."""
