"""The meaning of an AMQP 1.0 message to the rest of the gateway: its sections, its properties, its addresses.

Read `sections` first, then `translate`, `addresses`. Nothing here knows a link or a session.
"""
