"""One AMQP connection as a state machine: bytes, calls and time in; bytes and events out. No I/O.

Read `session` first. `handshake` negotiates, `methods_connection` opens and closes, `renewal` follows
changed logins, `state` names the states.
"""
