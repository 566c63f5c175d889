"""Values of AMQP 1.0 for kernels; see `_simple.pyx`. Only for other kernels."""
