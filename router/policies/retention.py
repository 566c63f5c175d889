"""Traffic retention by policy: which exchanges and queues of a vhost have one of their own.

    traffic-retention-seconds   traffic-retention-bytes     of a policy, for exchanges and for queues

Each message to such an exchange or queue is in the feed of its keeper
(`log_core.maintenance.feed_retention`). Each name has its own, made by the first message and kept over a
restart: a row of the table `feed` with the vhost, what it is ("exchange", or the type of the queue) and
the name. So a message is kept for replay as long as the longest of these says, and as the vhost says
where none does. Where a policy leaves something out, the vhost's value counts.

Policies are for names: what an exchange that is deleted has had stays as long. A retention feed goes
when it has nothing left and its policy, or what it is for, is gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.log_core.maintenance.retention import Retention
from penstock.router.limits.limits import RETENTION_BYTES, RETENTION_SECONDS

if TYPE_CHECKING:
    from penstock.log_core.feeds._feed import Feed
    from penstock.router.exchanges.entries import QueueEntry
    from penstock.router.exchanges.exchanges import Exchange, Slot
    from penstock.router.policies.policies import Policy
    from penstock.router.vhost.state import VhostState

__all__ = ["RETENTION_KEYS", "Retentions"]

RETENTION_KEYS: Final = frozenset({RETENTION_SECONDS, RETENTION_BYTES})

_EXCHANGE: Final = "exchange"


class _Kept:
    """One exchange or queue; a `retention_feeds.Owner`."""

    def __init__(self, retentions: Retentions, thing: str, name: str, feed: Feed) -> None:
        self._retentions = retentions
        self._thing = thing
        self._name = name
        self.feed = feed

    def retention(self) -> Retention:
        """The retention by its policy, or by its vhost where the policy has none."""
        return self._retentions.retention_of(self._thing, self._name)

    def emptied(self) -> None:
        """Nothing is kept: it goes, if nothing will come."""
        self._retentions.emptied(self._thing, self._name)


class Retentions:
    """Of one vhost."""

    def __init__(self, vhost: VhostState) -> None:
        self._vhost = vhost
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._said: dict[tuple[str, str], Mapping[str, object]] = {}
        """The retention by policy of the exchanges that were asked about."""
        self.is_on = False
        """Some policy says something; else no route asks."""

    # Routes

    def of(self, exchanges: Iterable[Exchange], slots: Iterable[Slot]) -> list[Feed]:
        """The retention feeds of what goes through these exchanges, to the queues of these slots."""
        names = [(_EXCHANGE, exchange.name) for exchange in exchanges if exchange.name]
        names += [
            (_type(entry), entry.name) for slot in slots for entry in slot.members if entry.kind == "queue"
        ]
        return [self._feed(*name) for name in dict.fromkeys(names) if self._of(*name)]

    def _feed(self, thing: str, name: str) -> Feed:
        kept = self._kept.get((thing, name))
        if kept is None:
            broker = self._vhost.broker
            with self._vhost.changing():
                feed = broker.feeds.of_retention(self._vhost.name, self._vhost.lp, thing, name)
            kept = self._keep(thing, name, feed)
        return kept.feed

    def _keep(self, thing: str, name: str, feed: Feed) -> _Kept:
        kept = self._kept[thing, name] = _Kept(self, thing, name, feed)
        self._vhost.broker.log.retention_feeds.own(feed, kept)
        return kept

    def restore(self, thing: str, name: str, feed: Feed) -> None:
        """Put back the retention feed of the last run."""
        self._keep(thing, name, feed)

    # Retention

    def _of(self, thing: str, name: str) -> Mapping[str, object]:
        said = self._said.get((thing, name))
        if said is None:
            definition = self._vhost.policies.definition(name, thing)
            said = {key: definition[key] for key in RETENTION_KEYS & definition.keys()}
            self._said[thing, name] = said
        return said

    def retention_of(self, thing: str, name: str) -> Retention:
        """How much of what an exchange or queue got is kept."""
        usual = self._vhost.broker.log.retention_of(self._vhost.lp)
        said = self._of(thing, name)
        keep_bytes, keep_s = said.get(RETENTION_BYTES), said.get(RETENTION_SECONDS)
        return Retention(
            keep_bytes if isinstance(keep_bytes, int) else usual.keep_bytes,
            keep_s if isinstance(keep_s, int) else usual.keep_s,
        )

    def emptied(self, thing: str, name: str) -> None:
        """Nothing is left of what this one got."""
        if thing == _EXCHANGE:
            exists = name in self._vhost.exchanges
        else:
            entry = self._vhost.queues.get(name)
            exists = entry is not None and _type(entry) == thing
        self._said.pop((thing, name), None)
        if not (exists and self._of(thing, name)):
            self._drop(thing, name)

    def _drop(self, thing: str, name: str) -> None:
        self._vhost.broker.feeds.drop_retention_feed(self._kept.pop((thing, name)).feed)

    # Changes

    def policies_changed(self, changed: Iterable[Policy]) -> None:
        """These came, went or are others now."""
        if self.is_on or any(RETENTION_KEYS & policy.definition.keys() for policy in changed):
            self.refresh()
            self._vhost.topology.renew()

    def refresh(self) -> None:
        """Ask the policies again."""
        self._said.clear()
        policies = self._vhost.policies
        both = (*policies.all("policy"), *policies.all("operator_policy"))
        self.is_on = any(RETENTION_KEYS & policy.definition.keys() for policy in both)
        retaining = self._vhost.broker.feeds.retaining
        (retaining.add if self.is_on else retaining.discard)(self._vhost.name)

    def clear(self) -> None:
        """The vhost goes, and all that it kept."""
        for name in list(self._kept):
            self._drop(*name)
        self._vhost.broker.feeds.retaining.discard(self._vhost.name)


def _type(entry: QueueEntry) -> str:
    return str(entry.arguments.get("x-queue-type", "classic"))
