"""AMQP 0-9-1 as a client: the connection, the relay of messages, shovels and their settings.

`federation` is built on them.
"""
