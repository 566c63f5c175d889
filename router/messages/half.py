"""Half messages: kept, and published when their sender says that the other part of its work has happened.

A producer prepares a message, does its own work (a local transaction), and commits or rolls back. If
nothing is heard, a present member of its group is asked (check-back). So a message is published exactly if
the work was done, though the producer may die at any moment.

    prepare    a row of the table `half`, which has the whole message: as durable as a message
    commit     it is published and the row goes, in one atomic unit
    rollback   the row goes

The first question comes after `check_after_ms`, then one every `check_each_ms`, as long as a member is
there (same vhost, user, group, and address of the message). If none is, the message's own address is
asked, if it has one (`SCHEME:WHERE`; front ends are couriers for schemes). After `max_checks` questions,
or when it is older than `expires_ms`, it is given up: it goes to the dead-letter topic, or is dropped, and
is counted. After a restart questions are counted anew; the age goes on.

    row key  | id u64, big-endian | : the LSN that the row was put at, or one below
    value    | head size u32 | key size u16 | priority u8 | enc u8 | flags u16 | ttl u32 |
             | properties size u32 | head: an encoded table | key block | properties | body |    little-endian
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.errors import HalfRefused, HalfUnknown, NotFound, RoutingError, TooManyHalves
from penstock.router.names import ENC_AMQP091, join_key_block, text
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.routes._routes import Route

__all__ = ["Ask", "Courier", "Half", "HalfMessage", "Halves", "Place", "Rules"]

logger = logging.getLogger("penstock.router")

HALVES_MAX: Final = 100_000
"""Half messages of a gateway that are undecided at once; half of them may be one user's."""
BYTES_MAX: Final = 1 << 30
"""Bytes of their properties and bodies together."""
_TABLE: Final = "half"
_HEAD: Final = Struct("<IHBBHII")
_LOOK_S: Final = 1.0


class Place(NamedTuple):
    """The group that decides about a half message, and is asked."""

    vhost: str
    user: str
    group: str
    key: bytes
    """Key block of what it is published to."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When is asked about a half message, and when it is given up; times in ms."""

    check_after_ms: int = 6_000
    check_each_ms: int = 30_000
    max_checks: int = 15
    expires_ms: int = 3 * 86_400_000
    dead_letter: str = ""
    """The topic or queue for what is given up; "": it is dropped."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """The message itself."""

    props: bytes
    body: bytes
    flags: int = 0
    priority: int = 0
    ttl_ms: int = 0
    enc: int = ENC_AMQP091


@dataclass(slots=True)
class Half:
    """One that is undecided."""

    id: int
    place: Place
    rules: Rules
    prepared_ms: int
    size: int
    name: str = ""
    """The name that its user gave it; "": none."""
    ask_at: str = ""
    """Where is asked when no producer of its place is there; "": nowhere."""
    due_ms: int = 0
    """When it is looked at next."""
    checks: int = 0
    """How often somebody was asked."""


Ask = Callable[[Half, HalfMessage], None]
"""Asks a producer what became of it; who knows commits or rolls back, who does not stays silent."""

Courier = Callable[[Half, HalfMessage], bool]
"""Asks at an address; False: it could not be asked now, which does not count."""


class Halves:
    """The half messages of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log
        self._tables = broker.log.tables
        self._tick = broker.tick
        self._halves: dict[int, Half] = {}
        self._at: dict[Place, dict[int, None]] = {}
        self._due: list[tuple[int, int]] = []
        self._names: dict[tuple[str, str, str], int] = {}
        self._askers: dict[Place, deque[Ask]] = {}
        self.couriers: dict[str, Courier] = {}
        """By the scheme of the addresses that they ask at."""
        self._bytes = 0
        self._of_user: dict[tuple[str, str], tuple[int, int]] = {}
        """How many, and their bytes, by vhost and user: nobody uses up what others need, too."""
        self._timer: Any = None
        self._closed = False
        self.committed = 0
        self.rolled_back = 0
        self.asked = 0
        self.given_up = 0

    def start(self) -> None:
        """Take over what the tables have."""
        for key, value in list(self._tables.items(_TABLE)):
            head, block, _ = _decoded(value)
            if head["vhost"] not in self._broker.vhosts:  # it belongs to another worker now
                self._tables.delete(_TABLE, key)
                continue
            place = Place(head["vhost"], head["user"], head["group"], block)
            rules = Rules(**{name: head[name] for name in Rules.__slots__})
            names = head.get("name", ""), head.get("ask_at", "")
            half = Half(int.from_bytes(key, "big"), place, rules, head["prepared_ms"], len(value), *names)
            self._enter(half, head["prepared_ms"] + rules.check_after_ms)

    def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Operations of producers

    def prepare(
        self,
        identity: Identity,
        place: Place,
        rules: Rules,
        message: HalfMessage,
        *,
        name: str = "",
        ask_at: str = "",
    ) -> tuple[int, int]:
        """Keep a message; its id, and the LSN to wait for.

        Whether `identity`, the place's user, may publish it was asked before; whether it may publish to the
        dead-letter topic is asked here.

        One whose name an undecided one of its user has is that one: what is sent again is kept once.

        Raises:
            TooManyHalves: so many are undecided.
            HalfRefused: whether it can be published cannot be promised.
            RoutingError: there is nothing to publish it to, or it may not be given up as the rules say.

        """
        known = self._names.get((place.vhost, place.user, name)) if name else None
        if known is not None:
            return known, self._log.appender.next_lsn - 1
        size = len(message.props) + len(message.body)
        if len(self._halves) >= HALVES_MAX or self._bytes + size > BYTES_MAX:
            raise TooManyHalves(len(self._halves), self._bytes)
        count, nbytes = self._of_user.get((place.vhost, place.user), (0, 0))
        if count >= HALVES_MAX // 2 or nbytes + size > BYTES_MAX // 2:
            raise TooManyHalves(count, nbytes, place.user)
        self._route(place)
        if rules.dead_letter:
            letters = join_key_block("", rules.dead_letter)
            self._broker.vhost(place.vhost).publishing.require(identity, ENC_AMQP091, letters)
        now_ms = self._log.wall_ms()
        head = encode_table(
            {
                "vhost": place.vhost,
                "user": place.user,
                "group": place.group,
                "prepared_ms": now_ms,
                "name": name,
                "ask_at": ask_at,
                **{rule: getattr(rules, rule) for rule in Rules.__slots__},
            }
        )
        sizes = _HEAD.pack(
            len(head),
            len(place.key),
            message.priority,
            message.enc,
            message.flags,
            message.ttl_ms,
            len(message.props),
        )
        id = self._log.appender.next_lsn
        value = b"".join((sizes, head, place.key, message.props, message.body))
        lsn = self._tables.put(_TABLE, id.to_bytes(8, "big"), value)
        self._enter(Half(id, place, rules, now_ms, len(value), name, ask_at), now_ms + rules.check_after_ms)
        return id, lsn

    def find(self, id: int, vhost: str, user: str) -> Half:
        """An undecided one of this user. Raises HalfUnknown: it was decided or given up, or is another's."""
        half = self._halves.get(id)
        if half is None or (half.place.vhost, half.place.user) != (vhost, user):
            raise HalfUnknown(id)
        return half

    def named(self, name: str, vhost: str, user: str) -> Half:
        """An undecided one by the name its user gave it. Raises HalfUnknown."""
        id = self._names.get((vhost, user, name))
        if id is None:
            raise HalfUnknown(name)
        return self._halves[id]

    def undecided(self, vhost: str) -> list[Half]:
        """Those of a vhost, the oldest first."""
        return [half for half in self._halves.values() if half.place.vhost == vhost]

    def commit(self, half: Half) -> tuple[int, int]:
        """Publish it; its position, and the LSN to wait for. Atomic.

        Raises:
            RoutingError: what it was for is gone, or may refuse it; it stays undecided.

        """
        route = self._route(half.place)
        with self._log.unit():
            position = self._publish(route, half.place, self._message(half))
            lsn = self._leave(half)
        self.committed += 1
        return position, lsn

    def rollback(self, half: Half) -> int:
        """Forget it; the LSN to wait for."""
        lsn = self._leave(half)
        self.rolled_back += 1
        return lsn

    def watch(self, place: Place, ask: Ask) -> Callable[[], None]:
        """Have questions about this place's messages go to `ask`, too; what ends that."""
        self._askers.setdefault(place, deque()).append(ask)
        now_ms = self._log.wall_ms()
        for id in self._at.get(place, ()):
            half = self._halves[id]
            if half.prepared_ms + half.rules.check_after_ms <= now_ms and not half.checks:
                # It waited for somebody to come.
                self._look_at(half, now_ms)

        def end() -> None:
            askers = self._askers.get(place)
            if askers is not None and ask in askers:
                askers.remove(ask)
                if not askers:
                    del self._askers[place]

        return end

    # Asking

    def _enter(self, half: Half, due_ms: int) -> None:
        self._halves[half.id] = half
        if half.name:
            self._names[half.place.vhost, half.place.user, half.name] = half.id
        self._count(half, 1)
        self._at.setdefault(half.place, {})[half.id] = None
        self._look_at(half, due_ms)

    def _look_at(self, half: Half, due_ms: int) -> None:
        """Look at it then; earlier entries of it in the heap count no more."""
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.id))
        if self._timer is None or self._due[0][1] == half.id:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and not self._closed:
            wait_s = max((self._due[0][0] - self._log.wall_ms()) / 1000, 0.0)
            # At least each second, since the clock may be set.
            self._timer = self._tick.after(min(wait_s, _LOOK_S), self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._closed or self._log.failed is not None:
            return
        now_ms = self._log.wall_ms()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, id = heapq.heappop(self._due)
            half = self._halves.get(id)
            if half is not None and half.due_ms == due_ms:
                again_ms = half.rules.check_each_ms
                what = (
                    f"half message {id} of group {half.place.group!r} could not be asked about or given up; "
                    f"it is looked at again in {again_ms / 1000:g} s"
                )
                if not guarded(logger, what, self._check, half, now_ms) and id in self._halves:
                    self._look_at(half, now_ms + again_ms)
        self._tick.schedule()
        self._arm()

    def _check(self, half: Half, now_ms: int) -> None:
        rules = half.rules
        if half.checks >= rules.max_checks or now_ms >= half.prepared_ms + rules.expires_ms:
            self._give_up(half)
            return
        self._look_at(half, min(now_ms + rules.check_each_ms, half.prepared_ms + rules.expires_ms))
        askers = self._askers.get(half.place)
        if askers:
            half.checks += 1
            self.asked += 1
            askers.rotate(-1)
            askers[0](half, self._message(half))
        elif (courier := self.couriers.get(half.ask_at.partition(":")[0])) is not None:
            half.checks += 1
            if courier(half, self._message(half)):
                self.asked += 1
            else:
                half.checks -= 1

    def _give_up(self, half: Half) -> None:
        rules, place = half.rules, half.place
        with self._log.unit():
            if rules.dead_letter:
                place = place._replace(key=join_key_block("", rules.dead_letter))
                try:
                    self._publish(self._route(place), place, self._message(half))
                except RoutingError as error:
                    logger.warning("a half message of group %r is dropped: %s", place.group, error)
            self._leave(half)
        self.given_up += 1

    # Inside

    def _count(self, half: Half, sign: int) -> None:
        self._bytes += sign * half.size
        whose = half.place.vhost, half.place.user
        count, nbytes = self._of_user.get(whose, (0, 0))
        self._of_user[whose] = count + sign, nbytes + sign * half.size
        if self._of_user[whose] == (0, 0):
            del self._of_user[whose]

    def _leave(self, half: Half) -> int:
        del self._halves[half.id]
        if half.name:
            del self._names[half.place.vhost, half.place.user, half.name]
        self._count(half, -1)
        ids = self._at[half.place]
        del ids[half.id]
        if not ids:
            del self._at[half.place]
        return self._tables.delete(_TABLE, half.id.to_bytes(8, "big"))

    def _route(self, place: Place) -> Route:
        route = self._broker.vhost(place.vhost).route(None, ENC_AMQP091, place.key)
        if route.error is not None:
            assert isinstance(route.error, RoutingError)
            raise route.error
        if route.special:
            raise HalfRefused
        if not place.key[0] and not route.routed:
            # The default exchange, and the topic is gone: it would be published to nobody.
            raise NotFound("queue", text(place.key[2:]), place.vhost)
        return route

    def _publish(self, route: Route, place: Place, message: HalfMessage) -> int:
        publishing = self._broker.vhost(place.vhost).publishing
        return publishing.append(
            route,
            place.key,
            message.props,
            message.body,
            message.flags,
            message.priority,
            message.enc,
            message.ttl_ms,
        ).lsn

    def _message(self, half: Half) -> HalfMessage:
        value = self._tables.get(_TABLE, half.id.to_bytes(8, "big"))
        assert value is not None
        return _decoded(value)[2]

    def statistics(self) -> dict[str, int]:
        """How many are undecided, and what became of the others since the start."""
        return {
            "half": len(self._halves),
            "half_committed": self.committed,
            "half_rolled_back": self.rolled_back,
            "half_checks": self.asked,
            "half_given_up": self.given_up,
        }


def _decoded(value: bytes) -> tuple[dict[str, Any], bytes, HalfMessage]:
    """The contents of a row: its head, the key block, the message."""
    head, key, priority, enc, flags, ttl_ms, props = _HEAD.unpack_from(value)
    ends = [_HEAD.size]
    for size in (head, key, props):
        ends.append(ends[-1] + size)
    message = HalfMessage(value[ends[2] : ends[3]], value[ends[3] :], flags, priority, ttl_ms, enc)
    return decode_table(value[ends[0] : ends[1]]), value[ends[1] : ends[2]], message
