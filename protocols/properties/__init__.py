"""Message properties: AMQP's property block, and the translation between protocols.

A record keeps its properties as the publisher encoded them. `translate` has the two total functions
between AMQP 0-9-1 and MQTT 5.0. `properties` reads and makes blocks in Python, `_properties` and
`_tables` are the kernels, `_translated` caches translations for consumers, `blocks` encodes publishers'
blocks and `values` has the types.
"""
