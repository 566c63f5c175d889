"""One native connection, sans-IO. Read `session` first; each other module answers one group of requests."""
