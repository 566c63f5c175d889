"""Native protocol front end: not built yet."""
