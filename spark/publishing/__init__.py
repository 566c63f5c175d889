"""Writing to a gateway: rows become AMQP messages (`messages`), and a client sends them (`amqp`).

`direct_copy` sends messages of a log in their order, and the JVM sees none of them.
"""
