"""The metrics page for Prometheus: RabbitMQ's names, and our own."""
