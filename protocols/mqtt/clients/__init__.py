"""Client sessions: the state of an MQTT client that outlives its connection.

`clients` is the registry, `client` one session (`_registry` and `_client` are what each connect needs of
them), `rows` its stored form, `packet_ids` its packet ids both ways. `timers` ends sessions and publishes
delayed wills, `backlog` bounds what waits for a session.
"""
