"""AMQP 1.0. The codec and the translation of messages are here; no listener uses them yet, and the gateway
refuses the protocol's header.
"""
