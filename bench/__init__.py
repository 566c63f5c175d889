"""Benchmarks: fixed-frame load generators, named workloads,
and the comparison with Mosquitto and RabbitMQ."""
