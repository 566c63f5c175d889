"""AMQP 0-9-1 by unmodified clients: pika, aio-pika, kombu, Celery, amqp091-go."""
