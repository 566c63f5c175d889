"""Direct replies: addresses of requesters that stand for no queue.

A requester gets a name in the default exchange. Only it and its partners know the name, which has 128
random bits. A message published to that name is given to the requester at once and is not logged. The name
ends with the requester. Source: RabbitMQ's direct reply-to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["REPLY_TO", "Replies", "is_reply_key"]

REPLY_TO: Final = "amq.rabbitmq.reply-to"
"""The pseudo-queue that a requester consumes from, and what it gives as its address."""

_PREFIX: Final = REPLY_TO.encode() + b"."

Receiver = Callable[[bytes, bytes, bytes, bool], None]
"""Called with the key block, the properties in AMQP's encoding and the body of a reply, and whether the
properties have the header with the sections of AMQP 1.0."""


def is_reply_key(key: bytes) -> bool:
    """Whether a routing key of the default exchange is, or looks like, the address of a requester."""
    return key.startswith(_PREFIX)


class Replies:
    """The requesters of a vhost."""

    def __init__(self) -> None:
        self._receivers: dict[bytes, Receiver] = {}

    def register(self, receiver: Receiver) -> str:
        """A new address, which nobody can guess."""
        name = _PREFIX + secrets.token_urlsafe(16).encode()
        self._receivers[name] = receiver
        return name.decode()

    def forget(self, name: str) -> None:
        """The requester is gone."""
        self._receivers.pop(name.encode(), None)

    def knows(self, name: str) -> bool:
        """Whether somebody waits there, or may: the pseudo-queue itself is always there."""
        return name == REPLY_TO or name.encode("utf-8", "surrogateescape") in self._receivers

    def waits_at(self, key: bytes) -> bool:
        """Whether a key block is the address of somebody who waits."""
        return key[:1] == b"\0" and key[2:] in self._receivers

    def deliver(self, keys: Iterable[bytes], props: bytes, body: bytes, *, sections: bool = False) -> bool:
        """Hand a message to the requesters among its key blocks, of which the first is the message's own.

        Returns whether there are addresses among them. Nothing happens at one where nobody waits.
        """
        blocks = list(keys)
        addresses = [block[2:] for block in blocks if block[0] == 0 and is_reply_key(block[2:])]
        for address in addresses:
            receiver = self._receivers.get(address)
            if receiver is not None:
                receiver(blocks[0], props, body, sections)
        return bool(addresses)
