"""Routes: what a routing key or a topic resolves to, and the structures that find it.

`_routes` is the table from key to route, with one hash per message. `topics` is the trie over binding
keys, `_filters` the one over MQTT topic filters. `router.publishing.resolve` fills the table on a miss.
"""
