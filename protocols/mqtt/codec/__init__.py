"""MQTT on the wire: packets, properties, reason codes, and the kernels that scan and encode.

`_scan` scans a read: publishes go to the log, acknowledgements to `_packet_ids`. `_deliver` and
`_publish` encode deliveries, `_shared_packets` encodes once what several sessions get, `_share_keys`
finds the key of a shared subscription. `packets` has the other packets, `properties` and `reasons` the
tables of MQTT 5.0.
"""
