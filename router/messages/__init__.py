"""Messages that are kept outside of queues.

`delayed` publishes a message at its time, and `delay_names` lets publishers cancel or replace it,
`delayed_listing` shows those that wait. `half`
keeps a message until its sender decides. `retained` keeps the last message of each MQTT topic.
"""
