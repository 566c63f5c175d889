"""Definitions files: export, and import with checks before anything changes."""
