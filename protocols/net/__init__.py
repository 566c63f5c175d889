"""Connections and sockets that all front ends share.

Read `connection` first: one TCP connection, without a word of any protocol. `_lifecycle` is its beginning and
its end, as each one has them. `_socket` reads and writes without the event loop's transports, `_stream` finds
complete messages in what was read, `outbuffer` collects output. `connection_context` and `process_context`
are what a connection, and the process, give them. `admission` decides by address who may connect; `buffers`
bounds the memory of all buffers together; `layers` lie between a socket and a connection, such as TLS;
`relay` passes bytes to another worker.
"""
