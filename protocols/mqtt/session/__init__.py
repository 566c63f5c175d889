"""One MQTT connection, sans-IO: CONNECT, login, and the packets after it.

Read `session` first. `opening` handles everything until CONNACK, with `connecting` and `authenticating`.
`serving` answers packets of an open connection. `replies` keeps answers in order while some wait for the
disk. `host` is the port to the socket side.
"""
