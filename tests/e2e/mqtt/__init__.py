"""MQTT by unmodified clients: paho, aiomqtt, MQTT.js, Mosquitto's own."""
