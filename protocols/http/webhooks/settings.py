"""Settings of one webhook: its source, its URL, and how it sends; read from JSON, every field checked.

{"source": {"queue": Q}                                    a queue's consumer
         | {"exchange": X, "routing_key": K}                a queue of its own, bound to X
         | {"topic": FILTER}                               the same, of an MQTT topic filter
         | {"stream": S, "from": "first" | "next"}         every message of a stream, from there on
         | {"stream": S, "subscription": N},               a consumer of a subscription to a stream
 "url": "https://...", "method": "POST", "headers": {...},
 "format": "cloudevents-binary" | "cloudevents-structured" | "cloudevents-batch" | "raw" | "json",
 "ordering": "none" | "key" | "strict", "ordering_key": "routing_key" | "header:NAME",
 "max_inflight": 32, "timeout_ms": 15000,
 "batch": {"max_messages": 1, "max_bytes": 262144, "linger_ms": 0},
 "filter": {"routing_key": PATTERN, "headers": {...}, "types": [...]},
 "retry": {"schedule_ms": [...], "max_age_ms": 345600000, "refused_attempts": 5},
 "auth": {"type": "none" | ...}, see `auth`,
 "disable_after_ms": 432000000, "verify": "options" | "challenge" | "none"}
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Final, Literal, get_args

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.shared.fields import Whole
from penstock.protocols.http.webhooks.fields import Fields, bad
from penstock.protocols.http.webhooks.security.auth import MASK, Auth, auth_of
from penstock.router.names import wildcards_are_alone

__all__ = [
    "BATCH",
    "FORMATS",
    "METHODS",
    "NUMBERS",
    "ORDERINGS",
    "RETRY",
    "SCHEDULED_MS_MAX",
    "SCHEDULE_MAX",
    "STARTS",
    "VERIFICATIONS",
    "Batch",
    "Filter",
    "Format",
    "Ordering",
    "Retry",
    "Settings",
    "Source",
    "settings_of",
]

Format = Literal["cloudevents-binary", "cloudevents-structured", "cloudevents-batch", "raw", "json"]
Ordering = Literal["none", "key", "strict"]
Verify = Literal["options", "challenge", "none"]

METHODS: Final = ("POST", "PUT", "PATCH")
FORMATS: Final[tuple[Format, ...]] = get_args(Format)
ORDERINGS: Final[tuple[Ordering, ...]] = get_args(Ordering)
VERIFICATIONS: Final[tuple[Verify, ...]] = get_args(Verify)
STARTS: Final = ("first", "next")

_MANY: Final = ("cloudevents-batch", "json")
_STANDARD_MS: Final = tuple(s * 1000 for s in (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400))
"""Standard Webhooks' delays, the first attempt being at once."""
_DAY_MS: Final = 86_400_000
_OWN: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade", "expect"}
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t !-~]*")


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from."""

    kind: Literal["queue", "exchange", "topic", "stream"]
    name: str
    """Of the queue, the exchange or the stream; the topic filter."""
    routing_key: str = ""
    start: str = "next"
    """Of a stream: "first" or "next"."""
    subscription: str = ""
    """To the stream, if it is one that is consumed."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages it is for; see `filters`. Empty: all."""

    routing_key: str = ""
    headers: dict[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """How many messages one request has."""

    max_messages: int = 1
    max_bytes: int = 256 << 10
    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class Retry:
    """When a message is sent again."""

    schedule_ms: tuple[int, ...] = _STANDARD_MS
    """From one attempt to the next, with 20 % of chance; after the last one it is dead."""
    max_age_ms: int = 4 * _DAY_MS
    """From its first attempt."""
    refused_attempts: int = 5
    """Attempts at a message that the receiver refuses (4xx)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """See the module."""

    source: Source
    url: str
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    format: Format = "cloudevents-binary"
    ordering: Ordering = "none"
    ordering_key: str = "routing_key"
    max_inflight: int = 32
    timeout_ms: int = 15_000
    batch: Batch = field(default_factory=Batch)
    filter: Filter = field(default_factory=Filter)
    retry: Retry = field(default_factory=Retry)
    disable_after_ms: int = 5 * _DAY_MS
    verify: Verify = "options"
    auth: Auth = field(default_factory=Auth)

    def shown(self) -> dict[str, Any]:
        """As JSON, with credentials masked, and the values of headers: they carry some, too."""
        shown: dict[str, Any] = orjson.loads(orjson.dumps(self))
        shown["source"] = _source_shown(self.source)
        shown["headers"] = dict.fromkeys(self.headers, MASK)
        shown["auth"] = self.auth.shown()
        return shown

    def stored(self) -> dict[str, Any]:
        """As JSON, whole; `settings_of` takes it back."""
        return {**self.shown(), "headers": self.headers, "auth": self.auth.stored()}


NUMBERS: Final = {
    "max_inflight": Whole(32, 1, 256),
    "timeout_ms": Whole(15_000, 100, 300_000),
    "disable_after_ms": Whole(5 * _DAY_MS, 1000, 365 * _DAY_MS),
}
BATCH: Final = {
    "max_messages": Whole(Batch().max_messages, 1, 1000),
    "max_bytes": Whole(Batch().max_bytes, 1, 16 << 20),
    "linger_ms": Whole(Batch().linger_ms, 0, 60_000),
}
RETRY: Final = {
    "max_age_ms": Whole(Retry().max_age_ms, 0, 365 * _DAY_MS),
    "refused_attempts": Whole(Retry().refused_attempts, 1, 100),
}
SCHEDULE_MAX: Final = 100
SCHEDULED_MS_MAX: Final = 7 * _DAY_MS


def settings_of(value: Any) -> Settings:
    """Read the settings of a webhook.

    Raises:
        HttpError: 400 `bad_field`, naming it.

    """
    fields = Fields(value, "")
    settings = Settings(
        source=_source(fields.object("source")),
        url=fields.text("url"),
        method=fields.choice("method", "POST", METHODS),
        headers=_headers(fields.take("headers", {})),
        format=fields.choice("format", "cloudevents-binary", FORMATS),
        ordering=fields.choice("ordering", "none", ORDERINGS),
        ordering_key=fields.text("ordering_key", "routing_key"),
        **fields.numbers(NUMBERS),
        batch=_batch(fields.object("batch", {})),
        filter=_filter(fields.object("filter", {})),
        retry=_retry(fields.object("retry", {})),
        verify=fields.choice("verify", "options", VERIFICATIONS),
        auth=auth_of(fields.object("auth", {})),
    )
    fields.end()
    if settings.batch.max_messages > 1 and settings.format not in _MANY:
        raise bad("batch.max_messages", f"more than one needs a format with many: {' or '.join(_MANY)}")
    key = settings.ordering_key
    if key != "routing_key" and not (key.startswith("header:") and len(key) > 7):
        raise bad("ordering_key", "routing_key, or header:NAME")
    if "authorization" in settings.headers and settings.auth.sets_authorization:
        raise bad("headers.authorization", "auth says what it is: leave one of them out")
    return settings


def _source(fields: Fields) -> Source:
    kinds = [kind for kind in ("queue", "exchange", "topic", "stream") if kind in fields.left]
    if len(kinds) != 1:
        raise bad("source", "one of queue, exchange, topic, stream")
    kind = kinds[0]
    name = fields.text(kind)
    key = fields.text("routing_key", "") if kind == "exchange" else ""
    subscription = fields.text("subscription", "") if kind == "stream" else ""
    has_start = kind == "stream" and not subscription
    start = fields.choice("from", "next", STARTS) if has_start else "next"
    fields.end()
    if not name or len(name.encode()) > 255 or len(key.encode()) > 255:
        raise bad("source", "names have 1 to 255 bytes")
    if kind == "topic" and not wildcards_are_alone(name):
        raise bad("source.topic", "+ is alone in its level of a topic filter, # alone in the last one")
    return Source(kind, name, key, start, subscription)


def _source_shown(source: Source) -> dict[str, str]:
    shown: dict[str, str] = {source.kind: source.name}
    if source.kind == "exchange":
        shown["routing_key"] = source.routing_key
    if source.subscription:
        shown["subscription"] = source.subscription
    elif source.kind == "stream":
        shown["from"] = source.start
    return shown


def _batch(fields: Fields) -> Batch:
    batch = Batch(**fields.numbers(BATCH))
    fields.end()
    return batch


def _filter(fields: Fields) -> Filter:
    key, headers = fields.text("routing_key", ""), fields.take("headers", {})
    types = fields.take("types", [])
    fields.end()
    if len(key.encode("utf-8", "surrogatepass")) > 255:
        raise bad("filter.routing_key", "a pattern of at most 255 bytes, as a topic exchange has it")
    if not isinstance(headers, dict) or len(headers) > 50:
        raise bad("filter.headers", "an object with at most 50 headers")
    if any(not isinstance(value, str | int | float | bool) for value in headers.values()):
        raise bad("filter.headers", "values are texts, numbers, true or false")
    if not isinstance(types, list) or len(types) > 100 or not all(isinstance(one, str) for one in types):
        raise bad("filter.types", "a list of at most 100 texts")
    return Filter(key, headers, tuple(types))


def _retry(fields: Fields) -> Retry:
    schedule = fields.take("schedule_ms", list(_STANDARD_MS))
    if not isinstance(schedule, list) or len(schedule) > SCHEDULE_MAX:
        raise bad("retry.schedule_ms", f"a list of at most {SCHEDULE_MAX} delays in milliseconds")
    delays = [whole(one) for one in schedule]
    for one in delays:
        if one is None or not 0 <= one <= SCHEDULED_MS_MAX:
            raise bad("retry.schedule_ms", f"a delay is a whole number from 0 to {SCHEDULED_MS_MAX}")
    retry = Retry(
        tuple(one for one in delays if one is not None),
        **fields.numbers(RETRY),
    )
    fields.end()
    return retry


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > 50:
        raise bad("headers", "an object with at most 50 header fields")
    for name, text in value.items():
        if not _TOKEN.fullmatch(name) or len(name) > 100:
            raise bad("headers", f"{name[:60]!r} is no name of a header field")
        if name.lower() in _OWN or name.lower().startswith(("webhook-", "ce-")):
            raise bad("headers", f"{name.lower()} is the gateway's")
        if not isinstance(text, str) or len(text) > 4096 or not _VALUE.fullmatch(text):
            raise bad(f"headers.{name}", "text in ASCII without line ends, at most 4096 characters")
    return {name.lower(): text for name, text in value.items()}
