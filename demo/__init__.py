"""A demonstration with real data and unmodified clients: telemetry in over MQTT, out over AMQP.

    python -m demo [--amqp HOST:PORT --mqtt HOST:PORT]      (`make demo`)

`data` reads the data set, `clients` publishes with paho and consumes with pika, `gateway` starts penstock
on free ports and a folder of its own unless the addresses of a running gateway are given.
"""
