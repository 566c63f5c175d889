"""Requests to the node `/management`: HTTP over AMQP 1.0, as RabbitMQ's clients declare and bind.

Read `requests` first, which has their form, then `methods`, and what these do in `queues`, `exchanges` and
`bindings`.
"""
