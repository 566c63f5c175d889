"""Publishes of MQTT that Python handles: wills and special cases, `$delayed` topics, and the `$SYS` tree."""
