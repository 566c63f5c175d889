"""Keeping retained messages. The module text is in _retaining.pyx."""

from penstock.router.vhost.vhost import Vhost

def store_retained(vhost: Vhost, topic: bytes, block: bytes, payload: bytes, qos: int, ttl_ms: int) -> int:
    """Make it the topic's retained message, or remove that for an empty payload (mqtt5:3.3.1-6).

    Returns the LSN its acknowledgement waits for, or 0.
    """
