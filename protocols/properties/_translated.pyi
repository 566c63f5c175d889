"""The kernel `_translated` has no face in Python: encoders cimport it (_translated.pxd)."""
