"""The subscriptions of one session, and the tags that stand for what they ask of deliveries.

The router binds a filter with a tag, and the cursor says of each message the tags of what matched it. Here a
tag stands for `Terms`: subscriptions without an identifier that ask for the same share it, so that the
session has one feed of its own for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_dataclass import dataclass
from penstock.protocols.mqtt.subscriptions.shared import is_shared
from penstock.router.sessions.filters import LISTED, NOTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.protocols.mqtt.codec.packets import Filter
    from penstock.router.sessions.filters import Kept

__all__ = ["FilterSet", "Subscription", "Terms"]

Wanted = tuple[int, bool, bool, int]


@dataclass(slots=True, eq=False)
class Terms:
    """The options that some subscriptions of a session share."""

    tag: int
    """Names them to the queue's cursor, not used again in its session; 0: a shared subscription's."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    """Subscription identifier, 0 = none."""
    count: int = 0
    """Subscriptions that have them."""

    @property
    def wanted(self) -> Wanted:
        """The options that are the same for all of them."""
        return self.qos, self.no_local, self.retain_as_published, self.identifier


@dataclass(slots=True, eq=False)
class Subscription:
    """One filter of a session."""

    topic: str
    terms: Terms
    retain_handling: int = 0

    @property
    def qos(self) -> int:
        """The QoS granted."""
        return self.terms.qos

    @property
    def no_local(self) -> bool:
        """It does not get what its own session publishes."""
        return self.terms.no_local

    @property
    def identifier(self) -> int:
        """Subscription identifier, 0 = none."""
        return self.terms.identifier

    @property
    def options(self) -> bytes:
        """Its stored form besides filter and tag: byte of SUBSCRIBE (mqtt5:3.8.3.1), and the identifier
        u32, little-endian, if there is one.
        """
        terms = self.terms
        packed = terms.qos | terms.no_local << 2 | terms.retain_as_published << 3 | self.retain_handling << 4
        return bytes((packed,)) + (terms.identifier.to_bytes(4, "little") if terms.identifier else b"")

    @property
    def kind(self) -> int:
        """Its options, as the router knows them; see `router.sessions.filters`."""
        if is_shared(self.topic):
            return LISTED | NOTED
        return NOTED if self.terms.no_local else 0


class FilterSet:
    """All subscriptions of a session."""

    __slots__ = ("_terms", "all", "by_tag", "next_tag")

    def __init__(self, kept: Iterable[Kept], next_tag: int) -> None:
        """`kept`: those of the router; no tag from `next_tag` on was ever used."""
        self.all: dict[str, Subscription] = {}
        """By filter."""
        self.by_tag: dict[int, Terms] = {}
        self.next_tag = next_tag
        self._terms: dict[Wanted, Terms] = {}
        for one in kept:
            packed, identifier = one.options[0], int.from_bytes(one.options[1:], "little")
            terms = self.by_tag.get(one.tag) or Terms(
                one.tag, packed & 3, bool(packed & 4), bool(packed & 8), identifier
            )
            self.add(Subscription(one.topic, terms, packed >> 4 & 3))

    def most_qos(self) -> int:
        """The highest QoS of those that are not shared; 0: there is none."""
        return max((terms.qos for terms in self.by_tag.values()), default=0)

    def terms_of(self, line: Filter, identifier: int) -> Terms:
        """The terms of a new subscription: the terms of others, or new ones."""
        wanted = line.qos, line.no_local, line.retain_as_published, identifier
        if is_shared(line.topic):
            return Terms(0, *wanted)
        # A message carries the identifier of each subscription that it matches, equal ones too
        # (mqtt5:3.3.4-3), so those with an identifier have terms of their own.
        known = None if identifier else self._terms.get(wanted)
        return known or Terms(self.next_tag, *wanted)

    def add(self, subscription: Subscription) -> None:
        """A new one."""
        self.all[subscription.topic] = subscription
        self._join(subscription.terms)

    def _join(self, terms: Terms) -> None:
        terms.count += 1
        if terms.tag:
            self.by_tag[terms.tag] = terms
            self._terms.setdefault(terms.wanted, terms)
            self.next_tag = max(self.next_tag, terms.tag + 1)

    def change(self, subscription: Subscription, line: Filter, identifier: int) -> None:
        """A SUBSCRIBE of the same filter replaces the options (mqtt5:3.8.4-3)."""
        subscription.retain_handling = line.retain_handling
        terms = subscription.terms
        if terms.wanted == (line.qos, line.no_local, line.retain_as_published, identifier):
            return
        if terms.count > 1:
            terms.count -= 1
            subscription.terms = self.terms_of(line, identifier)
            self._join(subscription.terms)
            return
        # Nobody else has them: they change, also for what waits.
        self._forget(terms)
        terms.qos, terms.no_local = line.qos, line.no_local
        terms.retain_as_published, terms.identifier = line.retain_as_published, identifier
        if terms.tag:
            self._terms.setdefault(terms.wanted, terms)

    def _forget(self, terms: Terms) -> None:
        if self._terms.get(terms.wanted) is terms:
            del self._terms[terms.wanted]

    def remove(self, topic: str) -> Subscription:
        """One is taken back; what it still has waiting is not sent once no other has its terms."""
        subscription = self.all.pop(topic)
        terms = subscription.terms
        terms.count -= 1
        if terms.tag and not terms.count:
            self._forget(terms)
            del self.by_tag[terms.tag]
        return subscription
