"""Listeners: accept, proxy header, TLS, WebSocket, and the registry of all connections.

Read `listener` first; `_acceptor` is the part that each connection passes. `front_end` makes the listeners
of one protocol. `proxy` reads the PROXY protocol, `websocket` with `_unframe` is the WebSocket layer,
`unix_socket` listens in the file system. `registry` sees all listeners; `definitions` is the port through
which front ends add to definitions files.
"""
