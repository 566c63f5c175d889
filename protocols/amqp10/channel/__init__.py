"""One session of AMQP 1.0 and its links. Read `channel` first, then `incoming` and `outgoing`."""
