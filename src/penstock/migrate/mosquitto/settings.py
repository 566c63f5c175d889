"""The fate of each setting of mosquitto.conf, by its name.

`SETTINGS` has those of the whole broker, `LISTENER` those of one listener, `BRIDGE` those of a bridge. A rule
says the options that a value becomes, or why it becomes none.

Source: mosquitto.conf(5) of Mosquitto 2.0, and its example of a configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.migrate.mosquitto.conf import Setting
from penstock.migrate.report import Fate, Report, Value

__all__ = ["BRIDGE", "LISTENER", "PLUGIN", "SETTINGS", "Outcome", "Rule", "apply_rule", "flag"]

Outcome = tuple[Fate, Mapping[str, Value], str]
"""The fate, the options, and a note."""
Rule = Callable[[str], Outcome]
"""From the value to the outcome. Raises ValueError: the value is none."""

_PACKET_MAX: Final = 268_435_455
_SESSION_MAX_S: Final = 4_294_967_294
_UNITS_S: Final = {"h": 3600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
_WATERMARK_MIN: Final = 16 << 20


def apply_rule(report: Report, setting: Setting, rule: Rule) -> None:
    """Note what a rule makes of a setting, and set its options."""
    try:
        fate, options, note = rule(setting.value)
    except ValueError as error:
        report.add(setting.place, setting.text, "wrong", str(error))
        return
    if options:
        report.move(setting.place, setting.text, options, note)
    else:
        report.add(setting.place, setting.text, fate, note)


def flag(value: str) -> bool:
    """A value that is true or false, as Mosquitto reads it."""
    if value in ("true", "1"):
        return True
    if value in ("false", "0"):
        return False
    raise ValueError("it is true or false")


def _number(value: str, least: int = 0, most: int = 2**63 - 1) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError("it is a number") from None
    if not least <= number <= most:
        raise ValueError(f"it is a number from {least} to {most}")
    return number


def _same(note: str) -> Rule:
    return lambda _: ("same", {}, note)


def _left(note: str) -> Rule:
    return lambda _: ("left out", {}, note)


def _if(wanted: bool, same: str, left: str) -> Rule:
    """A flag that penstock behaves by when it is `wanted`."""
    return lambda value: ("same", {}, same) if flag(value) == wanted else ("left out", {}, left)


def _count(key: str, least: int, most: int, *, unlimited: int | None = None) -> Rule:
    """A number that becomes an option; Mosquitto's 0, no limit, is `unlimited` there."""

    def rule(value: str) -> Outcome:
        number = _number(value)
        if number == 0 and unlimited is not None:
            return "moved", {key: unlimited}, ""
        fitting = min(max(number, least), most)
        return "moved", {key: fitting}, "" if fitting == number else f"penstock takes {least} to {most}"

    return rule


def _path(key: str) -> Rule:
    return lambda value: ("moved", {key: value}, "")


def _flag(key: str) -> Rule:
    return lambda value: ("moved", {key: flag(value)}, "")


def _queue(key: str) -> Rule:
    def rule(value: str) -> Outcome:
        limit = _number(value)
        options: dict[str, Value] = {key: limit}
        if limit:
            options["mqtt.queue_full"] = "drop-newest"
        return "moved", options, ""

    return rule


def _expiry(value: str) -> Outcome:
    number, unit = value[:-1], value[-1:]
    if unit not in _UNITS_S or not number.isdecimal() or int(number) < 1:
        raise ValueError("it is a number and one of h, d, w, m, y")
    seconds = int(number) * _UNITS_S[unit]
    return "moved", {"mqtt.session_expiry_max_s": min(seconds, _SESSION_MAX_S)}, ""


def _message_size(value: str) -> Outcome:
    limit = _number(value)
    packet = min(limit + 65_600, _PACKET_MAX) if limit else _PACKET_MAX
    return "moved", {"mqtt.max_packet_bytes": packet}, "penstock counts the packet with its topic"


def _memory(value: str) -> Outcome:
    limit = _number(value)
    if limit == 0:
        return "same", {}, "no fixed limit; server.memory_high_watermark is a part of the memory"
    if limit < _WATERMARK_MIN:
        return "left out", {}, f"a gateway needs {_WATERMARK_MIN} bytes at least"
    return "moved", {"server.memory_high_watermark": limit}, "publishers wait above it"


def _retain(value: str) -> Outcome:
    return _if(True, "retained messages are always there", "penstock has no switch that refuses them")(value)


def _max_qos(value: str) -> Outcome:
    if _number(value, 0, 2) == 2:
        return "same", {}, "QoS 2 is always there"
    return "left out", {}, "penstock has no lower limit; clients may use QoS 2"


def _log_type(value: str) -> Outcome:
    if value in ("debug", "all"):
        return "moved", {"server.log_level": "debug"}, ""
    if value in ("error", "warning", "notice", "information", "none"):
        return "same", {}, "server.log_level is info"
    return "left out", {}, "penstock has levels only: server.log_level"


def _log_dest(value: str) -> Outcome:
    if value == "stderr":
        return "same", {}, "log lines go to standard error"
    return "left out", {}, "log lines go to standard error; the service manager keeps them"


PLUGIN: Final = _left("plug-ins of Mosquitto cannot run here; make users with `penstock users`")
_AT_ONCE: Final = _same("everything is on disk before it is acknowledged")
_OLD: Final = _same("Mosquitto 2 ignores it, too")
_PSK: Final = _left("penstock has no pre-shared keys; use certificates (tls.ca_file)")

SETTINGS: Final[Mapping[str, Rule]] = {
    "acl_file": _same("see the lines of that file"),
    "allow_anonymous": _flag("mqtt.allow_anonymous"),
    "allow_duplicate_messages": _same("a client with overlapping filters gets a message once"),
    "allow_zero_length_clientid": _if(
        True, "an empty client id gets one", "penstock has no switch that refuses an empty client id"
    ),
    "auth_plugin": PLUGIN,
    "auth_plugin_deny_special_chars": _same("names with + or # match no pattern of an ACL"),
    "auto_id_prefix": _left("client ids that penstock makes have a prefix of their own"),
    "autosave_interval": _AT_ONCE,
    "autosave_on_changes": _AT_ONCE,
    "check_retain_source": _if(
        False,
        "a retained message stays when its publisher loses the right to publish it",
        "a retained message stays when its publisher loses the right to publish it",
    ),
    "clientid_prefixes": _left("use topic permissions with {client_id}"),
    "connection_messages": _if(
        True, "a connection writes two log lines", "set server.log_level to warning for none"
    ),
    "include_dir": _same("its files are read"),
    "log_dest": _log_dest,
    "log_facility": _left("log lines go to standard error; the service manager keeps them"),
    "log_timestamp": _if(True, "log lines have a time", "log lines always have a time"),
    "log_timestamp_format": _left("times are in ISO 8601"),
    "log_type": _log_type,
    "max_inflight_bytes": _left("mqtt.max_inflight counts messages; clients of MQTT 5 set a maximum"),
    "max_inflight_messages": _count("mqtt.max_inflight", 1, 65_535, unlimited=65_535),
    "max_keepalive": _count("mqtt.keepalive_max_s", 0, 65_535),
    "max_packet_size": _count("mqtt.max_packet_bytes", 1024, _PACKET_MAX, unlimited=_PACKET_MAX),
    "max_qos": _max_qos,
    "max_queued_bytes": _queue("mqtt.max_queued_bytes"),
    "max_queued_messages": _queue("mqtt.max_queued_messages"),
    "memory_limit": _memory,
    "message_size_limit": _message_size,
    "password_file": _same("see the lines of that file"),
    "per_listener_settings": _if(
        False,
        "settings hold for all listeners",
        "settings hold for all listeners; the first value of each counts",
    ),
    "persistence": _if(True, "everything is kept on disk", "penstock keeps everything on disk: log.data_dir"),
    "persistence_file": _same("see the lines about the database"),
    "persistence_location": _same("see the lines about the database"),
    "persistent_client_expiration": _expiry,
    "pid_file": _left("the service manager knows the process; see deploy/systemd"),
    "plugin": PLUGIN,
    "psk_file": _PSK,
    "queue_qos0_messages": _flag("mqtt.queue_qos0_messages"),
    "retain_available": _retain,
    "retry_interval": _OLD,
    "set_tcp_nodelay": _same("packets are never held back"),
    "store_clean_interval": _OLD,
    "sys_interval": _count("mqtt.sys_interval_s", 0, 86_400),
    "upgrade_outgoing_qos": _if(
        False,
        "a message has the lower of both QoS",
        "a message always has the lower of both QoS",
    ),
    "user": _left("penstock runs as the user that starts it; see deploy/systemd"),
    "websockets_log_level": _left("penstock has one level: server.log_level"),
}
"""Settings of the whole broker. Those that begin with `auth_opt_` or `plugin_opt_` are like `plugin`."""


def _min_version(value: str) -> Outcome:
    versions = {"tlsv1.3": "1.3", "tlsv1.2": "1.2"}
    if value in versions:
        return "moved", {"tls.min_version": versions[value]}, ""
    return "moved", {"tls.min_version": "1.2"}, "penstock speaks no older version"


def _required(value: str) -> Outcome:
    if flag(value):
        return "moved", {"tls.verify_client": "required"}, ""
    return "same", {}, "clients need no certificate"


def _named_by(part: str) -> Rule:
    def rule(value: str) -> Outcome:
        if flag(value):
            return (
                "moved",
                {"mqtt.cert_login": True, "tls.cert_login_from": part},
                "make such users",
            )
        return "same", {}, "clients log in with a user name"

    return rule


def _connections(value: str) -> Outcome:
    number = _number(value, -1)
    if number <= 0:
        return "same", {}, "no limit"
    return "moved", {"server.max_connections": number}, "of each listener"


LISTENER: Final[Mapping[str, Rule]] = {
    "bind_interface": _left("name the address of the interface in mqtt.listen"),
    "cafile": _path("tls.ca_file"),
    "capath": _left("put the certificates into one file: tls.ca_file"),
    "certfile": _path("tls.cert_file"),
    "ciphers": _path("tls.ciphers"),
    "ciphers_tls1.3": _left("OpenSSL's defaults hold for TLS 1.3"),
    "crlfile": _path("tls.crl_file"),
    "dhparamfile": _same("OpenSSL chooses the parameters"),
    "http_dir": _left("penstock serves no files"),
    "keyfile": _path("tls.key_file"),
    "max_connections": _connections,
    "max_topic_alias": _count("mqtt.topic_alias_maximum", 0, 65_535),
    "mount_point": _left("topics get no prefix; a vhost of its own keeps the clients of a listener apart"),
    "psk_hint": _PSK,
    "require_certificate": _required,
    "tls_engine": _left("keys are files: tls.key_file"),
    "tls_engine_kpass_sha1": _left("keys are files: tls.key_file"),
    "tls_keyform": _left("keys are files: tls.key_file"),
    "tls_version": _min_version,
    "use_identity_as_username": _named_by("common_name"),
    "use_subject_as_username": _named_by("distinguished_name"),
    "use_username_as_clientid": _if(
        False, "client ids are the clients' own", "no switch for this; sessions belong to their user anyway"
    ),
    "websockets_headers_size": _same("a handshake may have 8 KiB"),
}
"""Settings of one listener, besides those that say where it listens."""

BRIDGE: Final = frozenset(
    {
        *("address", "addresses", "bridge_alpn", "bridge_attempt_unsubscribe", "bridge_bind_address"),
        *("bridge_cafile", "bridge_capath", "bridge_certfile", "bridge_identity", "bridge_insecure"),
        *("bridge_keyfile", "bridge_max_packet_size", "bridge_outgoing_retain", "bridge_protocol_version"),
        *("bridge_psk", "bridge_require_ocsp", "bridge_tls_version", "cleansession", "clientid"),
        *("connection", "idle_timeout", "keepalive_interval", "local_cleansession", "local_clientid"),
        *("local_password", "local_username", "notification_topic", "notifications"),
        *("notifications_local_only", "password", "remote_clientid", "remote_password", "remote_username"),
        *("restart_timeout", "round_robin", "start_type", "threshold", "topic", "try_private", "username"),
    }
)
"""Settings of bridges."""
