"""Layers between a socket and its connection: bytes that are read and written pass through them.

Read `_layer` first: the base of them. `_tls_layer` is the work of TLS for each read and each write, and
`tls_transport` the rest of it. The layer of WebSocket is in `listening`, with its handshake.
"""
