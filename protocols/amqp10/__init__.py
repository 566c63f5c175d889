"""AMQP 1.0. The codec is here; no listener uses it yet, and the gateway refuses the protocol's header."""
