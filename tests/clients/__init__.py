"""Clients of AMQP 1.0 that take long to build: `make amqp10-clients`."""
