"""Upstreams of federation: the values of their parameters, and those that a policy names.

    component federation-upstream       {"uri": ..., "exchange": ..., "max-hops": ...}
    component federation-upstream-set   [{"upstream": NAME, and terms that count instead of its own}, ...]
    policy    federation-upstream       one upstream, by name
              federation-upstream-set   a set; "all" = all upstreams of the vhost
              federation-upstream-pattern   all whose name has a match

Source: rabbitmq.com/docs/federation-reference; rabbit_federation_parameters, rabbit_federation_upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, cast

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp.parameters import (
    SCHEMAS,
    Check,
    any_of,
    flag,
    listed,
    mistakes_of,
    number,
    prefetch,
    text,
    uris,
)
from penstock.protocols.links.amqp.settings import AckMode
from penstock.router.authorization.patterns import compile_pattern

__all__ = ["ALL", "Upstream", "check_set", "check_upstream", "set_schema", "upstream_schema", "upstreams_of"]

ALL: Final = "all"
"""The name of the set of all upstreams."""

_SHARED: Final[dict[str, Check]] = {
    "exchange": text,
    "queue": text,
    "consumer-tag": text,
    "prefetch-count": prefetch,
    "reconnect-delay": number,
    "max-hops": number,
    "expires": number,
    "message-ttl": number,
    "trust-user-id": flag,
    "ack-mode": any_of("on-confirm", "on-publish", "no-ack"),
    "queue-type": any_of("classic", "quorum"),
    "resource-cleanup-mode": any_of("default", "never"),
    # Of clusters and of how RabbitMQ talks to itself: accepted, without an effect.
    "ha-policy": text,
    "bind-nowait": flag,
    "channel-use-mode": any_of("multiple", "single"),
}
_UPSTREAM: Final[dict[str, Check]] = {"uri": uris, **_SHARED}
_MEMBER: Final[dict[str, Check]] = {"upstream": text, **_SHARED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A broker that messages come from, with all that a set says of it."""

    name: str
    uris: tuple[str, ...]
    user: str
    """The user who put it, with whose rights it acts here; "" = the default user."""
    exchange: str | None = None
    """The name of the exchange there; None: as here."""
    queue: str | None = None
    """The name of the queue there; None: as here."""
    consumer_tag: str = ""
    prefetch: int = 1000
    reconnect_delay_s: float = 5.0
    """The first pause after a fault; 0 = it stays down."""
    max_hops: int = 1
    """Links that a message crosses at most."""
    expires_ms: int | None = None
    message_ttl_ms: int | None = None
    queue_type: str | None = None
    """Of the queue at the upstream of an exchange."""
    trust_user_id: bool = False
    ack_mode: AckMode = "on-confirm"
    cleanup: Literal["default", "never"] = "default"
    """Whether queue and exchange at the upstream go when the federation ends."""

    @property
    def queue_arguments(self) -> dict[str, Any]:
        """Of the queue at the upstream of an exchange."""
        found = {
            "x-expires": self.expires_ms,
            "x-message-ttl": self.message_ttl_ms,
            "x-queue-type": self.queue_type,
            "x-internal-purpose": "federation",
        }
        return {name: value for name, value in found.items() if value is not None}


def check_upstream(value: Any) -> None:
    """Raises ValueError: it is no value of an upstream; a line for each mistake."""
    _refuse(mistakes_of(value, _UPSTREAM, ("uri",), "federation-upstream"))


def upstream_schema() -> dict[str, Any]:
    """A JSON Schema of what `check_upstream` takes."""
    return _schema(_UPSTREAM, "uri")


def set_schema() -> dict[str, Any]:
    """A JSON Schema of what `check_set` takes."""
    return {"type": "array", "items": _schema(_MEMBER, "upstream")}


def _schema(terms: Mapping[str, Check], needed: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: SCHEMAS[check] for name, check in terms.items()},
        "required": [needed],
        "additionalProperties": False,
    }


def check_set(value: Any) -> None:
    """Raises ValueError: it is no value of a set."""
    if not isinstance(value, list):
        raise ValueError("the value of a federation-upstream-set should be an array of objects")
    _refuse(
        [
            mistake
            for member in value
            for mistake in mistakes_of(member, _MEMBER, ("upstream",), "federation-upstream-set")
        ]
    )


def _refuse(mistakes: list[str]) -> None:
    if mistakes:
        raise ValueError("\n".join(mistakes))


def upstreams_of(
    definition: Mapping[str, object],
    upstreams: Mapping[str, tuple[Mapping[str, Any], str]],
    sets: Mapping[str, list[Mapping[str, Any]]],
) -> list[Upstream]:
    """The upstreams that the definition of a policy names, and that there are.

    Args:
        definition: With one of the keys of federation at most.
        upstreams: Value and user by name.
        sets: Values by name.

    """
    members: Iterable[Mapping[str, Any]] = ()
    one, pattern, of_set = (definition.get(f"federation-upstream{rest}") for rest in ("", "-pattern", "-set"))
    if isinstance(one, str):
        members = ({"upstream": one},)
    elif isinstance(pattern, str):
        expression = compile_pattern(pattern)
        members = ({"upstream": name} for name in upstreams if expression.search(name.encode()) is not None)
    elif of_set == ALL:
        members = ({"upstream": name} for name in upstreams)
    elif isinstance(of_set, str):
        members = sets.get(of_set, ())
    return [
        _upstream(member["upstream"], {**upstreams[member["upstream"]][0], **member}, user)
        for member in members
        if (user := upstreams.get(member["upstream"], ({}, None))[1]) is not None
    ]


def _upstream(name: str, value: Mapping[str, Any], user: str) -> Upstream:
    def whole(term: str) -> int | None:
        return int(value[term]) if term in value else None

    return Upstream(
        name=name,
        uris=listed(value["uri"]),
        user=user,
        exchange=value.get("exchange"),
        queue=value.get("queue"),
        consumer_tag=value.get("consumer-tag", f"federation-link-{name}"),
        prefetch=int(value.get("prefetch-count", 1000)),
        reconnect_delay_s=float(value.get("reconnect-delay", 5)),
        max_hops=int(value.get("max-hops", 1)),
        expires_ms=whole("expires"),
        message_ttl_ms=whole("message-ttl"),
        queue_type=value.get("queue-type"),
        trust_user_id=value.get("trust-user-id", False),
        ack_mode=cast("AckMode", value.get("ack-mode", "on-confirm")),
        cleanup=value.get("resource-cleanup-mode", "default"),
    )
