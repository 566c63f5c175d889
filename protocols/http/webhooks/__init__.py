"""Webhooks: messages of a queue, an exchange, a topic or a stream pushed to a URL."""
