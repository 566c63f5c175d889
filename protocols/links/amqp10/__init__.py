"""Shovels with AMQP 1.0 at one end or both: the client, its links, and the ends by 0-9-1 beside them.

Messages are those of AMQP 1.0 inside: an end by 0-9-1 translates them. Between two ends by 1.0 the kernel
`_messages` takes and sends them. Read `shovel` first.
"""
