"""A move from RabbitMQ, and the way back.

`conf` converts rabbitmq.conf. `definitions` compares the declarations of both sides, and `reasons` says why
something has no effect here. `moving` drains queues, each with a `shovel`, which speaks AMQP by `wire`.
"""
