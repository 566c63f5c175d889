"""The management API: RabbitMQ's, as far as its tools read it, over this broker."""
