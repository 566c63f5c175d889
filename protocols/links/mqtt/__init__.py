"""MQTT as a client: bridges to other brokers with the meaning of Mosquitto's `connection`."""
