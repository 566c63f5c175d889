"""The slots of the messages that a cursor gave, for shared subscriptions by key."""

from typing_extensions import Buffer

from penstock.protocols.mqtt.codec._deliver import Deliverer
from penstock.subscriptions.cursor._cursor import Cursor

def topic_slots(deliverer: Deliverer, cursor: Cursor) -> Buffer:
    """u16 of each item of the last take: of its topic; what cannot be said in MQTT has slot 0."""

def publisher_slots(cursor: Cursor) -> Buffer:
    """u16 of each item of the last take: of the session that published it, 0 where the record names none."""
