"""The option kind "list of bridges": connections to other MQTT brokers, with the names of mosquitto.conf.

Source: mosquitto.conf(5), "Configuring bridges".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, cast

from penstock.config.kinds import Address, BadValue, Kind, inline_tables, shown, toml_value
from penstock.lazy_dataclass import dataclass

__all__ = ["Bridge", "Bridges", "Direction", "Topic"]

Direction = Literal["out", "in", "both"]
_EXAMPLE = 'write it as {name = "plant", address = "broker:1883", topics = ["sensors/# out 1"]}'
_TOPIC = 'write it as "PATTERN out|in|both QOS LOCAL_PREFIX REMOTE_PREFIX"; what is last may be left out'
_VERSIONS = ("mqttv50", "mqttv311", "mqttv31")


@dataclass(frozen=True, slots=True)
class Topic:
    """Topics that cross: one line `topic` of mosquitto.conf."""

    pattern: str
    """A filter; "" = the prefixes are one topic on each side."""
    direction: Direction = "out"
    qos: int = 0
    local_prefix: str = ""
    remote_prefix: str = ""

    @property
    def local(self) -> str:
        """The filter on our side."""
        return self.local_prefix + self.pattern

    @property
    def remote(self) -> str:
        """The filter on the other side."""
        return self.remote_prefix + self.pattern

    @classmethod
    def parse(cls, text: str) -> Topic:
        """Read what stands behind `topic`. Raises BadValue."""
        import shlex  # here, since few gateways have bridges

        try:
            words = shlex.split(text)
        except ValueError:
            words = []
        if not 1 <= len(words) <= 5:
            raise BadValue(f"{text!r} is no topic of a bridge", _TOPIC)
        direction = words[1] if len(words) > 1 else "out"
        qos = words[2] if len(words) > 2 else "0"
        if direction not in ("out", "in", "both"):
            raise BadValue(f"{direction!r} is not out, in or both", _TOPIC)
        if qos not in ("0", "1", "2"):
            raise BadValue(f"the QoS {qos!r} is not 0, 1 or 2", _TOPIC)
        prefixes = [*words[3:], "", ""]
        made = cls(words[0], cast("Direction", direction), int(qos), prefixes[0], prefixes[1])
        for one in (made.local, made.remote):
            if not _is_filter(one):
                raise BadValue(f"{one!r} is no topic filter", _TOPIC)
        if any(sign in prefix for prefix in prefixes for sign in "+#"):
            raise BadValue(f"a prefix of {text!r} has a wildcard", _TOPIC)
        return made


def _is_filter(text: str) -> bool:
    levels = text.split("/")
    if not text or "\0" in text or len(text.encode()) > 65535:
        return False
    return "#" not in "".join(levels[:-1]) and all(
        level in ("+", "#") or not any(sign in level for sign in "+#") for level in levels
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A bridge. Names and defaults are Mosquitto's, where it has them."""

    name: str
    """Of its own; the client ids are made of it."""
    address: str
    """HOST:PORT of the other broker."""
    topics: tuple[Topic, ...]
    vhost: str = "/"
    """Of the gateway."""
    local_username: str = ""
    """The gateway's user whose rights it has; "" = auth.default_user."""
    local_clientid: str = ""
    """"" = local.REMOTE_CLIENTID."""
    remote_clientid: str = ""
    """"" = HOST.NAME, HOST being the name of this machine."""
    remote_username: str = ""
    remote_password: str = ""
    protocol_version: str = "mqttv50"
    """A broker that refuses MQTT 5 is spoken to by 3.1.1."""
    cleansession: bool = False
    """Whether both sides forget what passes while there is no connection."""
    keepalive_interval: int = 60
    max_inflight_messages: int = 0
    """Messages of QoS 1 and 2 under way to the other broker, at most. 0 = half of what it says that it takes,
    up to 16,384; 20 with MQTT 3, which has no word for it. A Mosquitto loses messages of QoS 2 above its own
    setting of that name."""
    restart_timeout: int = 5
    """Seconds of the first pause after a fault; 0 = it stays down."""
    notifications: bool = True
    notifications_local_only: bool = False
    notification_topic: str = ""
    """"" = $SYS/broker/connection/REMOTE_CLIENTID/state."""
    try_private: bool = True
    """Whether MQTT 3 says that a bridge connects, so that its own messages do not come back."""
    outgoing_retain: bool = True
    """Whether retained messages are so on the other side, too."""
    tls: bool = False
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    insecure: bool = False
    """Whether certificate and name of the other broker are not checked."""


_DEFAULTS: Mapping[str, object] = {
    one.name: one.default for one in fields(Bridge) if one.default is not MISSING
}
_SECRET = "remote_password"


@dataclass(frozen=True)
class Bridges(Kind):
    """A list of bridges; as text, a TOML array of inline tables."""

    def from_value(self, value: object) -> tuple[Bridge, ...]:
        if not isinstance(value, list):
            raise BadValue(f"{shown(value)} is not a list of bridges", _EXAMPLE)
        bridges: list[Bridge] = []
        for entry in value:
            if not isinstance(entry, dict):
                raise BadValue(f"{shown(entry)} is not a bridge", _EXAMPLE)
            made = _bridge(entry)
            if any(made.name == other.name for other in bridges):
                raise BadValue(f"the bridge {made.name!r} is given twice", "remove one of them")
            bridges.append(made)
        return tuple(bridges)

    def from_text(self, text: str) -> tuple[Bridge, ...]:
        return self.from_value(toml_value(text))

    def schema(self) -> dict[str, object]:
        kinds = {bool: "boolean", int: "integer", str: "string"}
        optional = {name: {"type": kinds[type(one)]} for name, one in _DEFAULTS.items()}
        text = {"type": "string"}
        bridge = {
            "type": "object",
            "properties": {
                "name": {**text, "minLength": 1},
                "address": text,
                "topics": {"type": "array", "items": text, "minItems": 1},
                **optional,
                "protocol_version": {"enum": list(_VERSIONS)},
            },
            "required": ["name", "address", "topics"],
            "additionalProperties": False,
        }
        return {"type": "array", "items": bridge}

    def range(self) -> str:
        return "tables of name, address, topics and more"

    def plain(self, value: object) -> object:
        assert isinstance(value, tuple)
        return [_plain(bridge) for bridge in value]

    def toml(self, value: object) -> str:
        plain = self.plain(value)
        assert isinstance(plain, list)
        return inline_tables(plain)


def _plain(bridge: Bridge) -> dict[str, object]:
    """The keys whose values are no defaults."""
    import shlex

    topics = [
        shlex.join([one.pattern, one.direction, str(one.qos), one.local_prefix, one.remote_prefix])
        for one in bridge.topics
    ]
    changed = {
        name: getattr(bridge, name) for name, default in _DEFAULTS.items() if getattr(bridge, name) != default
    }
    return {"name": bridge.name, "address": bridge.address, "topics": topics, **changed}


def _bridge(entry: dict[str, Any]) -> Bridge:
    name = entry.get("name")
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 100:
        raise BadValue("a bridge needs a name of 1 to 100 bytes", _EXAMPLE)
    said = dict(entry)
    known = {one.name for one in fields(Bridge)}
    if unknown := sorted(set(said) - known):
        raise BadValue(f"the bridge {name!r} has no {unknown[0]!r}", f"it has {', '.join(sorted(known))}")
    address = said.get("address")
    if not isinstance(address, str):
        raise BadValue(f"the bridge {name!r} needs an address", _EXAMPLE)
    Address.parse(address)
    topics = said.get("topics")
    if not isinstance(topics, list) or not topics or not all(isinstance(one, str) for one in topics):
        raise BadValue(f"the bridge {name!r} needs a list of topics", _TOPIC)
    said["topics"] = tuple(map(Topic.parse, topics))
    for key, default in _DEFAULTS.items():
        if key in said and type(said[key]) is not type(default):
            raise BadValue(f"{key} of the bridge {name!r} is no {type(default).__name__}", _EXAMPLE)
    made = Bridge(**said)
    for key, check, remedy in _RULES:
        if not check(getattr(made, key)):
            raise BadValue(f"{key} of the bridge {name!r} cannot be so", remedy)
    return made


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("protocol_version", lambda value: value in _VERSIONS, f"choose one of {', '.join(_VERSIONS)}"),
    ("keepalive_interval", lambda value: 5 <= value <= 65535, "give 5 to 65535 seconds"),
    ("max_inflight_messages", lambda value: 0 <= value <= 65535, "give 0 to 65535"),
    ("restart_timeout", lambda value: 0 <= value <= 3600, "give 0 to 3600 seconds"),
    (
        "notification_topic",
        lambda value: not any(sign in value for sign in "+#\0"),
        "give a topic without wildcards",
    ),
)
