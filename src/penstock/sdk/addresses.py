"""Addresses of producers and consumers: topics, queues, exchanges, MQTT's topics and filters.

An MQTT topic is a routing key of the exchange `amq.topic`, with `.` for `/`; a filter is a binding key there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.sdk.checking import FOREVER_S, number, text, whole
from penstock.sdk.message import MessageId

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from penstock.sdk.connection.link import Link

    Start = str | datetime | timedelta | MessageId
    """Where reading begins: "earliest", "latest", "-1h", a time, so long ago, a message and what follows."""

__all__ = ["Opening", "of_producer", "of_reader", "of_subscription", "start_of"]

_MQTT: Final = "amq.topic"
_OF_QUEUES: Final = ("exclusive", "priority", "max_unacked")
"""The options of a consumer of a queue that exists."""


class Opening(NamedTuple):
    """How a consumer is opened on a connection."""

    do: str
    fields: Mapping[str, Any]
    queue: Mapping[str, Any] = MappingProxyType({})
    """Of a binding: how its queue is declared."""
    binding: tuple[str, str] | None = None
    """Exchange and key, of a queue that is declared and bound first."""
    start: str = "latest"
    takes: bool = True
    """It takes the messages that it gets; else it goes on after a lost connection where it was."""

    async def on(self, link: Link, handle: int, position: int | None) -> int | None:
        """Open it; `position` is where a reader goes on. Where one begins, when that is told.

        Raises ClientError.
        """
        start = self.start if position is None else f"pos:{position}"
        if self.binding is None:
            begins = {} if "queue" in self.fields and self.do == "subscribe" else {"start": start}
            answer = await link.request(self.do, handle=handle, **self.fields, **begins)
            return answer.get("position")
        told = await link.request("declare_queue", **self.queue)
        exchange, key = self.binding
        since = {} if start == "latest" else {"since": "pos:1" if start == "earliest" else start}
        await link.request("bind", queue=told["queue"], exchange=exchange, routing_key=key, **since)
        await link.request(self.do, handle=handle, queue=told["queue"], **self.fields)
        return None

    @property
    def name(self) -> str:
        """A description of it, for error texts."""
        if self.binding is not None:
            return f"exchange {self.binding[0]!r}, key {self.binding[1]!r}"
        of = "topic" if "topic" in self.fields else "queue"
        name = f"{of} {self.fields[of]!r}"
        subscription = self.fields.get("subscription")
        return name if subscription is None else f"subscription {subscription!r} of {name}"


def start_of(start: Start) -> str:
    """A start as the wire has it.

    Raises:
        ValueError: a datetime without a zone.
        TypeError: it is none of `Start`.

    """
    if isinstance(start, str | MessageId):
        return str(start)
    from datetime import datetime, timedelta

    match start:
        case timedelta():
            return f"-{max(int(start.total_seconds()), 0)}s"
        case datetime() if start.tzinfo is None:
            raise ValueError("start must be a datetime with a time zone: datetime.now(UTC), or .astimezone()")
        case datetime():
            return start.isoformat()
    raise TypeError(
        f"start is text, a datetime, a timedelta or a MessageId, not {type(start).__name__}; "
        "for milliseconds since the epoch use datetime.fromtimestamp(ms / 1000, UTC)"
    )


def _one_of(what: str, routing_key: str, **targets: str | None) -> str:
    """Which of these is given. Raises TypeError: none, or several, or a routing key without an exchange."""
    given = [name for name, value in targets.items() if value is not None]
    for name in given:
        if not isinstance(targets[name], str):
            raise TypeError(f"{name} is text, not {type(targets[name]).__name__}")
        if not targets[name] and name != "exchange":
            raise ValueError(f"{name} is empty: {what} needs a name")
    if len(given) != 1:
        raise TypeError(f"{what} needs one of {', '.join(targets)}; given: {', '.join(given) or 'none'}")
    if not isinstance(routing_key, str):
        raise TypeError(f"routing_key is text, not {type(routing_key).__name__}")
    if routing_key and given[0] != "exchange":
        raise TypeError(f"routing_key= goes with exchange=, not with {given[0]}=")
    return given[0]


def _key(filter: str) -> str:
    """The binding key that stands for an MQTT filter."""
    if filter.startswith("$share/"):
        raise ValueError(
            f"{filter!r}: no $share filters here; use the group as subscription, the rest as filter"
        )
    levels = filter.split("/")
    if "#" in levels[:-1] or any(len(level) > 1 and {"+", "#"} & set(level) for level in levels):
        raise ValueError(f"{filter!r} is no MQTT filter: + and # are levels of their own, # the last one")
    return filter.replace("/", ".").replace("+", "*")


def of_producer(
    topic: str | None,
    queue: str | None,
    exchange: str | None,
    routing_key: str,
    mqtt_topic: str | None,
    create: bool,
) -> Mapping[str, Any]:
    """The fields of `open_producer`. Raises TypeError."""
    match _one_of(
        "a producer", routing_key, topic=topic, queue=queue, exchange=exchange, mqtt_topic=mqtt_topic
    ):
        case "topic":
            return {"topic": topic, "create": create}
        case "queue":
            return {"exchange": "", "routing_key": queue}
        case "exchange":
            return {"exchange": exchange, "routing_key": routing_key}
    assert mqtt_topic is not None
    if "+" in mqtt_topic or "#" in mqtt_topic:
        raise ValueError(f"{mqtt_topic!r} has wildcards: publish to a topic, not to a filter")
    return {"exchange": _MQTT, "routing_key": mqtt_topic.replace("/", ".")}


def of_reader(
    topic: str | None,
    queue: str | None,
    exchange: str | None,
    routing_key: str,
    mqtt_filter: str | None,
    start: Start,
) -> Opening:
    """Raises TypeError, ValueError."""
    begins = start_of(start)
    match _one_of(
        "a reader", routing_key, topic=topic, queue=queue, exchange=exchange, mqtt_filter=mqtt_filter
    ):
        case "topic":
            return Opening("read", {"topic": topic}, start=begins, takes=False)
        case "queue":
            return Opening("read", {"queue": queue}, start=begins, takes=False)
        case "exchange":
            assert exchange is not None
            binding = exchange, routing_key
        case _:
            assert mqtt_filter is not None
            binding = _MQTT, _key(mqtt_filter)
    own = {"durable": False, "exclusive": True, "auto_delete": True}
    return Opening("subscribe", {"auto": True}, own, binding, begins, takes=False)


def of_subscription(
    topic: str | None,
    subscription: str | None,
    queue: str | None,
    exchange: str | None,
    routing_key: str,
    mqtt_filter: str | None,
    start: Start,
    consumer: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Opening:
    """`consumer`: what is said of one consumer; `options`: of the subscription, without what is usual.

    Raises:
        TypeError: what was said does not go together.
        ValueError: a name or a start that cannot be.

    """
    begins = start_of(start)
    place = _one_of(
        "subscribe", routing_key, topic=topic, queue=queue, exchange=exchange, mqtt_filter=mqtt_filter
    )
    said = {**consumer, **options, **({} if begins == "latest" else {"start": begins})}
    if place == "queue":
        wrong = [name for name in said if name not in _OF_QUEUES and name != "create"]
        if subscription is not None or wrong:
            names = ", ".join(wrong or ["subscription"])
            raise TypeError(f"the queue {queue!r} is consumed as it was declared: leave out {names}")
        return Opening("subscribe", {"queue": queue, **consumer})
    if not subscription:
        remedy = "" if place == "topic" else "; without one use reader()"
        raise TypeError(f"subscribe to {place}= needs a name: subscription={remedy}")
    if consumer.get("exclusive"):
        raise TypeError('exclusive=True is for queues; a subscription has kind="exclusive"')
    text("subscription", subscription)
    if place == "topic":
        return Opening(
            "subscribe", {"topic": topic, "subscription": subscription, **consumer, **options}, start=begins
        )
    binding = (exchange or "", routing_key) if mqtt_filter is None else (_MQTT, _key(mqtt_filter))
    fields, declared = _queue_of(subscription, consumer, options)
    return Opening("subscribe", fields, declared, binding, begins)


def _queue_of(
    name: str, consumer: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a durable queue that stands for a subscription to an exchange: how it is consumed, and declared."""
    fields = {name: value for name, value in consumer.items() if name in _OF_QUEUES}
    arguments: dict[str, Any] = {}
    kind = options.get("kind", "shared")
    if kind == "exclusive":
        fields["exclusive"] = True
    elif kind == "failover":
        arguments["x-single-active-consumer"] = True
    elif kind != "shared":
        raise TypeError(f"a subscription to an exchange is shared, failover or exclusive, not {kind!r}")
    if consumer.keys() - set(_OF_QUEUES) or "sticky" in options:
        raise TypeError("consumer= and ranges= are for subscriptions to topics")
    for option, argument in (
        ("ack_timeout_ms", "x-ack-timeout-ms"),
        ("nack_min_ms", "x-nack-min-ms"),
        ("nack_max_ms", "x-nack-max-ms"),
        ("dead_letter", "x-dead-letter-routing-key"),
    ):
        if option in options:
            arguments[argument] = options[option]
    if "dead_letter" in options:
        arguments["x-dead-letter-exchange"] = ""
    if "max_deliveries" in options:
        arguments["x-delivery-limit"] = options["max_deliveries"] - 1
    return fields, {"queue": name, "durable": options.get("durable", True), "arguments": arguments}


def options_of(
    *,
    kind: str,
    durable: bool,
    create: bool,
    ack_timeout_s: float | None,
    nack_backoff_s: tuple[float, float] | None,
    max_deliveries: int | None,
    dead_letter: str | None,
    ranges: Sequence[tuple[int, int]] | None,
) -> dict[str, Any]:
    """The fields of a subscription, without those that are as usual."""
    if nack_backoff_s is not None and not (
        isinstance(nack_backoff_s, tuple | list) and len(nack_backoff_s) == 2
    ):
        raise TypeError(
            f"nack_backoff_s is a pair, the first and the longest wait: (1, 60), not {nack_backoff_s!r}"
        )
    least, most = (None, None) if nack_backoff_s is None else nack_backoff_s
    if max_deliveries is not None:
        whole("max_deliveries", max_deliveries, 1, 65_535)
    fields = {
        "kind": None if kind == "shared" else kind,
        "durable": None if durable else False,
        "create": create or None,
        "ack_timeout_ms": _ms("ack_timeout_s", ack_timeout_s),
        "nack_min_ms": _ms("nack_backoff_s", least),
        "nack_max_ms": _ms("nack_backoff_s", most),
        "max_deliveries": max_deliveries,
        "dead_letter": dead_letter,
        "sticky": None if ranges is None else True,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _ms(name: str, seconds: float | None) -> int | None:
    """Seconds in ms, of which there is one at least if there is something. Raises TypeError, ValueError."""
    return None if seconds is None else math.ceil(number(name, seconds, 0, FOREVER_S) * 1000)
