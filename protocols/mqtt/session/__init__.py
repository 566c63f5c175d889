"""One MQTT connection, sans-IO: CONNECT, login, and the packets after it.

Read `_lifecycle` first: what each client goes through, with `_connecting` for its CONNECT. `session` has the
rest; `opening`, with `authenticating`, a CONNECT that is not ordinary. `serving` answers packets of an open
connection. `_replies` keeps answers in order while some wait for the disk. `host` is the port to the socket
side.
"""
