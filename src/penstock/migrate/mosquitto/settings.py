"""The fate of each setting of mosquitto.conf, by its name.

`SETTINGS` has those of the whole broker, `LISTENER` those of one listener, `BRIDGE` those of a bridge. A rule
says the options that a value becomes, or why it becomes none.

Source: mosquitto.conf(5) of Mosquitto 2.0, and its example of a configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.migrate.report import Value
from penstock.migrate.rules import Outcome, Rule, choose, count, flag, left, number, path, same, switch

__all__ = ["BRIDGE", "LISTENER", "PLUGIN", "SETTINGS"]

_PACKET_MAX: Final = 268_435_455
_SESSION_MAX_S: Final = 4_294_967_294
_UNITS_S: Final = {"h": 3600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
_WATERMARK_MIN: Final = 16 << 20


def _queue(key: str) -> Rule:
    def rule(value: str) -> Outcome:
        limit = number(value)
        options: dict[str, Value] = {key: limit}
        if limit:
            options["mqtt.queue_full"] = "drop-newest"
        return "moved", options, ""

    return rule


def _expiry(value: str) -> Outcome:
    digits, unit = value[:-1], value[-1:]
    if unit not in _UNITS_S or not digits.isdecimal() or int(digits) < 1:
        raise ValueError("it is a number and one of h, d, w, m, y")
    seconds = int(digits) * _UNITS_S[unit]
    return "moved", {"mqtt.session_expiry_max_s": min(seconds, _SESSION_MAX_S)}, ""


def _message_size(value: str) -> Outcome:
    limit = number(value)
    packet = min(limit + 65_600, _PACKET_MAX) if limit else _PACKET_MAX
    return "moved", {"mqtt.max_packet_bytes": packet}, "penstock counts the packet with its topic"


def _memory(value: str) -> Outcome:
    limit = number(value)
    if limit == 0:
        return "same", {}, "no fixed limit; server.memory_high_watermark is a part of the memory"
    if limit < _WATERMARK_MIN:
        return "left out", {}, f"a gateway needs {_WATERMARK_MIN} bytes at least"
    return "moved", {"server.memory_high_watermark": limit}, "publishers wait above it"


def _retain(value: str) -> Outcome:
    return choose(True, "retained messages are always there", "penstock has no switch that refuses them")(
        value
    )


def _max_qos(value: str) -> Outcome:
    if number(value, 0, 2) == 2:
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


PLUGIN: Final = left("plug-ins of Mosquitto cannot run here; make users with `penstock users create`")
_AT_ONCE: Final = same("everything is on disk before it is acknowledged")
_OLD: Final = same("Mosquitto 2 ignores it, too")
_PSK: Final = left("penstock has no pre-shared keys; use certificates (tls.ca_file)")

SETTINGS: Final[Mapping[str, Rule]] = {
    "acl_file": same("see the lines of that file"),
    "allow_anonymous": switch("mqtt.allow_anonymous"),
    "allow_duplicate_messages": same("a client with overlapping filters gets a message once"),
    "allow_zero_length_clientid": choose(
        True, "an empty client id gets one", "penstock has no switch that refuses an empty client id"
    ),
    "auth_plugin": PLUGIN,
    "auth_plugin_deny_special_chars": same("names with + or # match no pattern of an ACL"),
    "auto_id_prefix": left("client ids that penstock makes have a prefix of their own"),
    "autosave_interval": _AT_ONCE,
    "autosave_on_changes": _AT_ONCE,
    "check_retain_source": choose(
        False,
        "a retained message stays when its publisher loses the right to publish it",
        "a retained message stays when its publisher loses the right to publish it",
    ),
    "clientid_prefixes": left("use topic permissions with {client_id}"),
    "connection_messages": choose(
        True, "a connection writes two log lines", "set server.log_level to warning for none"
    ),
    "include_dir": same("its files are read"),
    "log_dest": _log_dest,
    "log_facility": left("log lines go to standard error; the service manager keeps them"),
    "log_timestamp": choose(True, "log lines have a time", "log lines always have a time"),
    "log_timestamp_format": left("times are in ISO 8601"),
    "log_type": _log_type,
    "max_inflight_bytes": left("mqtt.max_inflight counts messages; clients of MQTT 5 set a maximum"),
    "max_inflight_messages": count("mqtt.max_inflight", 1, 65_535, unlimited=65_535),
    "max_keepalive": count("mqtt.keepalive_max_s", 0, 65_535),
    "max_packet_size": count("mqtt.max_packet_bytes", 1024, _PACKET_MAX, unlimited=_PACKET_MAX),
    "max_qos": _max_qos,
    "max_queued_bytes": _queue("mqtt.max_queued_bytes"),
    "max_queued_messages": _queue("mqtt.max_queued_messages"),
    "memory_limit": _memory,
    "message_size_limit": _message_size,
    "password_file": same("see the lines of that file"),
    "per_listener_settings": choose(
        False,
        "settings hold for all listeners",
        "settings hold for all listeners; the first value of each counts",
    ),
    "persistence": choose(True, "everything is kept on disk", "penstock always keeps everything"),
    "persistence_file": same("see the lines about the database"),
    "persistence_location": same("see the lines about the database"),
    "persistent_client_expiration": _expiry,
    "pid_file": left("the service manager knows the process; see deploy/systemd"),
    "plugin": PLUGIN,
    "psk_file": _PSK,
    "queue_qos0_messages": switch("mqtt.queue_qos0_messages"),
    "retain_available": choose(True, "retained messages are there", "penstock has no switch for them"),
    "retry_interval": _OLD,
    "set_tcp_nodelay": same("packets are never held back"),
    "store_clean_interval": _OLD,
    "sys_interval": count("mqtt.sys_interval_s", 0, 86_400),
    "upgrade_outgoing_qos": choose(
        False,
        "a message has the lower of both QoS",
        "a message always has the lower of both QoS",
    ),
    "user": left("penstock runs as the user that starts it; see deploy/systemd"),
    "websockets_log_level": left("penstock has one level: server.log_level"),
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
    most = number(value, -1)
    if most <= 0:
        return "same", {}, "no limit"
    return "moved", {"server.max_connections": most}, "of each listener"


LISTENER: Final[Mapping[str, Rule]] = {
    "bind_interface": left("name the address of the interface in mqtt.listen"),
    "cafile": path("tls.ca_file"),
    "capath": left("put the certificates into one file: tls.ca_file"),
    "certfile": path("tls.cert_file"),
    "ciphers": path("tls.ciphers"),
    "ciphers_tls1.3": left("OpenSSL's defaults hold for TLS 1.3"),
    "crlfile": path("tls.crl_file"),
    "dhparamfile": same("OpenSSL chooses the parameters"),
    "http_dir": left("penstock serves no files"),
    "keyfile": path("tls.key_file"),
    "max_connections": _connections,
    "max_topic_alias": count("mqtt.topic_alias_maximum", 0, 65_535),
    "mount_point": left("topics get no prefix; a vhost of its own keeps the clients of a listener apart"),
    "psk_hint": _PSK,
    "require_certificate": _required,
    "tls_engine": left("keys are files: tls.key_file"),
    "tls_engine_kpass_sha1": left("keys are files: tls.key_file"),
    "tls_keyform": left("keys are files: tls.key_file"),
    "tls_version": _min_version,
    "use_identity_as_username": _named_by("common_name"),
    "use_subject_as_username": _named_by("distinguished_name"),
    "use_username_as_clientid": choose(
        False, "client ids are the clients' own", "no switch for this; sessions belong to their user anyway"
    ),
    "websockets_headers_size": same("a handshake may have 8 KiB"),
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
