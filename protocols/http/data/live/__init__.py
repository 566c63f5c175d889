"""Live traffic over HTTP: WebSockets (`sockets`), server-sent events (`sse`), tails and events."""
