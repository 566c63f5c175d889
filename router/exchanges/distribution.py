"""Exchanges that give a message to one of their bindings: by a hash, by weight, or at random.

    x-consistent-hash   equal values go to the same one; weights divide the values; a new or removed binding
                        moves only its own share
    x-modulus-hash      equal values go to the same one, as long as the bindings do not change
    x-random            any one; x-local-random is the same

The weight of a binding is its key, a whole number. Each (key, destination) is one slot, so the weights of
a queue that is bound by several keys add up.

Consistent hashing is weighted rendezvous hashing: slot s scores -w / ln(h(value, s)) and the highest wins.
It needs no ring, costs the same for every weight, does not depend on the order of bindings, and gives the
same result after a restart. It takes time in the number of slots per value; routes keep the answer per
routing key.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998); RabbitMQ's
rabbit_exchange_type_consistent_hash, _random, _local_random, rabbit_sharding_exchange_type_modulus_hash.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import blake2b
from math import log
from typing import TYPE_CHECKING, Final

from penstock.router.arguments import Arguments, MessageHeaders, encode_table
from penstock.router.errors import InvalidBinding, InvalidHash

if TYPE_CHECKING:
    from penstock.router.exchanges.exchanges import Slot, Subject

__all__ = ["CHOOSING_TYPES", "Chooser", "check_choosing", "checked_weight"]

CHOOSING_TYPES: Final = ("x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random")

_HASHED_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
_WEIGHT_MAX: Final = 2**31 - 1
_MASK: Final = 2**64 - 1


def check_choosing(type_: str, arguments: Arguments) -> None:
    """Look at the arguments of an exchange that is declared.

    Raises:
        InvalidHash: `hash-property` is none that can be hashed, or comes with `hash-header`.

    """
    if type_ != "x-consistent-hash" or "hash-property" not in arguments:
        return
    if "hash-header" in arguments:
        raise InvalidHash(None)
    if arguments["hash-property"] not in _HASHED_PROPERTIES:
        raise InvalidHash(str(arguments["hash-property"]))


def checked_weight(type_: str, key: str, queue_type: str | None) -> int:
    """The weight of a binding with this key; `queue_type` None: to an exchange.

    Raises:
        InvalidBinding: the exchange cannot have such a binding.

    """
    if type_ == "x-local-random":
        if key:
            raise InvalidBinding("key_not_empty", key)
        if queue_type != "classic":
            raise InvalidBinding("queue_type" if queue_type else "no_queue", queue_type or "")
    if type_ != "x-consistent-hash":
        return 1
    digits = key[1:] if key[:1] in ("+", "-") else key
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidBinding("key_no_integer", key)
    weight = int(key)
    if weight < 1:
        raise InvalidBinding("key_not_positive", key)
    if weight > _WEIGHT_MAX:
        raise InvalidBinding("key_too_large", key)
    return weight


class Chooser:
    """Picks one of the slots of an exchange. Made anew when they change."""

    def __init__(self, type_: str, arguments: Arguments, slots: Sequence[Slot]) -> None:
        self._type = type_
        self._header = arguments.get("hash-header") if type_ == "x-consistent-hash" else None
        self._property = arguments.get("hash-property") if type_ == "x-consistent-hash" else None
        # In an order that a restart does not change.
        self._slots = sorted(slots, key=lambda slot: slot.pattern)
        self._seeds = [(_digest(slot.pattern), slot.weight, slot) for slot in self._slots]

    @property
    def per_message(self) -> bool:
        """Whether the choice depends on more than the routing key."""
        by_key = self._type == "x-modulus-hash" or (
            self._type == "x-consistent-hash" and not self._looks_inside
        )
        return bool(self._slots) and not by_key

    @property
    def _looks_inside(self) -> bool:
        return self._header is not None or self._property is not None

    def pick(self, subject: Subject) -> Sequence[Slot]:
        """One slot, or none when there is none or the message is needed and not at hand."""
        if not self._slots or (subject.headers is None and self.per_message):
            return ()
        match self._type:
            case "x-consistent-hash":
                return (self._weighted(_digest(self._value(subject))),)
            case "x-modulus-hash":
                return (self._slots[_digest(subject.key) % len(self._slots)],)
            case _:
                return (random.choice(self._slots),)

    def _value(self, subject: Subject) -> bytes:
        """The hashed value: a message without the header or property goes where the empty value goes."""
        headers = subject.headers
        if headers is None or not self._looks_inside:
            return subject.key
        if self._header is not None:
            found = headers.get(str(self._header))
        else:
            properties = headers.properties if isinstance(headers, MessageHeaders) else {}
            found = properties.get(str(self._property))
        return b"" if found is None else encode_table({"": found})

    def _weighted(self, value: int) -> Slot:
        best: tuple[float, Slot] | None = None
        for seed, weight, slot in self._seeds:
            # In (0, 1]: the logarithm of 0 is none.
            share = ((_mixed(seed ^ value) >> 11) + 1) / (1 << 53)
            score = -log(share) / weight
            if best is None or score < best[0]:
                best = score, slot
        assert best is not None
        return best[1]


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _mixed(x: int) -> int:
    """The finalizer of splitmix64: each bit of the answer depends on all of x."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
