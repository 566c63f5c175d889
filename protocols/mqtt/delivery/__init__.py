"""Deliveries to one MQTT connection: from its queue, of retained messages, and from the past.

Read `delivery` first. `subscribing` handles SUBSCRIBE and UNSUBSCRIBE, `retained` sends retained
messages in pages, `replays` serves `$replay/...`.
"""
