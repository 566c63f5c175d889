"""Filters of a source, and selectors: conditions in SQL. Read `filters` first, then `parser`."""
