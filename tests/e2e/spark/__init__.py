"""Spark's source and client without a JVM, and the run of `tests/spark`."""
