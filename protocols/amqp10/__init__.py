"""AMQP 1.0 front end, on the listeners of 0-9-1. Read `session` first, then `channel`."""
