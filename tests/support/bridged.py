"""AMQP publishing to MQTT sessions."""

from __future__ import annotations

from penstock.router.names import ENC_AMQP091, join_key_block
from tests.support.mqtt import Gateway


def amqp_publish(gateway: Gateway, key: str, body: bytes, props: bytes = b"\0\0", flags: int = 0) -> None:
    gateway.vhost.publish(
        gateway.guest, ENC_AMQP091, join_key_block("amq.topic", key), props, body, flags=flags
    )
    gateway.settle()
