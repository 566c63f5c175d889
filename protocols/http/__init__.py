"""HTTP front end: not built yet."""
