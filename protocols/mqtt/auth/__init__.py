"""Authorization specific to MQTT: Mosquitto's ACL files (`acl`, `acl_rules`) and plugins of amqtt
(`amqtt_host`).
"""
