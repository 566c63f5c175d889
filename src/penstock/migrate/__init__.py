"""Moves from other brokers: the content of their files and servers, into a penstock that runs.

`report` has the fate of each line. `mosquitto` reads Mosquitto's files, `rabbitmq` RabbitMQ's
configuration file and a RabbitMQ that runs, `emqx` the export of an EMQX 4. Begin with
`mosquitto.convert` for the files, `mosquitto.apply` for the messages.

Nothing here is imported by the gateway.
"""
