"""AMQP 1.0 by unmodified clients of Python, Java, Go and JavaScript."""
