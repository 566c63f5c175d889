"""The gateway as a process. `server` puts all parts together; the rest is its start, watches and reloads."""
