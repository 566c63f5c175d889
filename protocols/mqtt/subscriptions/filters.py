"""Topic filters: what is one, and what is special about some.

Source: MQTT 5.0 section 4.7 and 4.8.2.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.codec.reasons import Malformed
from penstock.protocols.mqtt.options import TOPIC_LEVELS_MAX
from penstock.protocols.mqtt.subscriptions.shared import filter_of
from penstock.router.names import wildcards_are_alone

__all__ = ["FILTERS_MAX", "check_filter", "covers", "is_reserved", "refusal_of"]

FILTERS_MAX: Final = 10_000
"""Filters of one session. A packet can ask for 200,000; at 30 us each that would stop everybody for 6 s."""

_RESERVED = frozenset({b"$SYS", b"$share", b"$queue", b"$delayed", b"$exclusive", b"$replay", b"$amq"})
"""First levels that have, or will have, a meaning of ours."""
_BRIDGES = [b"$SYS", b"broker", b"connection"]


def is_reserved(topic: bytes) -> bool:
    """Whether clients may not publish to `topic`.

    The specification (4.7.2) asks servers to keep clients from talking over topics that begin with `$`, but
    makes it no rule, and programs written for Mosquitto do it: only what the gateway itself gives a meaning
    to is refused. Bridges of Mosquitto tell their state in `$SYS/broker/connection/NAME/state`, as a will and
    a retained message.
    """
    if not topic.startswith(b"$") or topic.partition(b"/")[0] not in _RESERVED:
        return False
    levels = topic.split(b"/")
    return not (levels[:3] == _BRIDGES and len(levels) == 5 and levels[4] == b"state")


def check_filter(topic_filter: str) -> None:
    """A topic filter: `+` alone in its level, `#` alone in the last one, no control characters.

    Raises:
        Malformed: it is not one (mqtt5:4.7.1-1, mqtt5:4.7.1-2, mqtt5:4.7.3-1).

    """
    if not topic_filter:
        raise Malformed("an empty topic filter")
    for letter in topic_filter:
        if letter < " " or "\x7f" <= letter < "\xa0":
            raise Malformed("a topic filter with a control character")
    if not wildcards_are_alone(topic_filter):
        raise Malformed("a wildcard that is not alone in its level")


def refusal_of(topic_filter: str) -> int:
    """Why a filter that is one is not served, as a reason code; 0 = it is."""
    if filter_of(topic_filter).count("/") + 1 > TOPIC_LEVELS_MAX:
        return reasons.TOPIC_FILTER_INVALID
    return 0


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that `narrow` matches (a filter, or a topic itself) is matched by `wide`."""
    if wide[:1] in ("+", "#") and narrow.startswith("$"):
        return False  # mqtt5:4.7.2-1
    one, other = wide.split("/"), narrow.split("/")
    for i, level in enumerate(one):
        if level == "#":
            return True
        if i >= len(other):
            return False
        if other[i] == "#" or (level != "+" and level != other[i]):
            return False
    # `a/#` matches `a` as well.
    return len(one) == len(other)
