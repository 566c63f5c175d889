"""The fate of each setting of rabbitmq.conf, by its name.

`EXACT` has settings by their whole name, `$` standing for a last part that the user chooses, and `FAMILIES`
those that begin alike. Settings that need others beside them, as a port needs its address, are in `conf`.

Source: the schemas that RabbitMQ 3.10 comes with (`priv/schema/*.schema`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.migrate.rules import Outcome, Rule, choose, count, left, number, path, same, switch

__all__ = ["EXACT", "FAMILIES"]

_SIZE: Final = re.compile(r"(\d+)\s*([kKMGT]?(?:i?B)?)")
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WATERMARK_MIN: Final = 16 << 20
_BYTES_MAX: Final = 1 << 60


def _bytes(value: str) -> int:
    """A size as RabbitMQ writes it: 2GB is 2 * 10^9, and 2GiB or 2G is 2 * 2^30. Raises ValueError."""
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError("it is a size, such as 2GB")
    unit = found[2].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit and unit != "b" else 1024
    size: int = int(found[1]) * base ** _POWERS[unit.rstrip("b").rstrip("i")]
    return size


def _milliseconds(key: str, least_s: float, most_s: float) -> Rule:
    def rule(value: str) -> Outcome:
        seconds = min(max(number(value) / 1000, least_s), most_s)
        return "moved", {key: seconds}, ""

    return rule


def _watermark(value: str) -> Outcome:
    try:
        part = float(value)
    except ValueError:
        raise ValueError("it is a part from 0 to 1") from None
    if not 0 <= part <= 1:
        raise ValueError("it is a part from 0 to 1")
    return "moved", {"server.memory_high_watermark": part}, ""


def _watermark_bytes(value: str) -> Outcome:
    size = max(_bytes(value), _WATERMARK_MIN)
    return "moved", {"server.memory_high_watermark": size}, ""


def _disk(value: str) -> Outcome:
    return "moved", {"log.min_free_bytes": min(_bytes(value), _BYTES_MAX)}, ""


def _ttl(value: str) -> Outcome:
    if value in ("undefined", "infinity"):
        return "moved", {"mqtt.session_expiry_max_s": 4_294_967_294}, "sessions do not expire"
    return "moved", {"mqtt.session_expiry_max_s": min(-(-number(value) // 1000), 4_294_967_294)}, ""


def _connections(value: str) -> Outcome:
    if value == "infinity":
        return "same", {}, "no limit"
    return "moved", {"server.max_connections": number(value, 1, 10_000_000)}, "of each listener"


def _only(wanted: str, note: str) -> Rule:
    """A text that has one value in penstock."""
    return lambda value: ("same", {}, note) if value == wanted else ("left out", {}, note)


def _level(value: str) -> Outcome:
    levels = {"critical": "error", "none": "error", "notice": "info"}
    level = levels.get(value, value)
    if level not in ("debug", "info", "warning", "error"):
        raise ValueError("it is debug, info, warning, error, critical or none")
    return "moved", {"server.log_level": level}, ""


def _formatter(value: str) -> Outcome:
    return "moved", {"server.log_format": "json" if value == "json" else "text"}, ""


def _backend(value: str) -> Outcome:
    if value in ("internal", "rabbit_auth_backend_internal"):
        return "same", {}, "users and permissions are penstock's own"
    if "oauth2" in value:
        return "left out", {}, "set the section oauth: docs/reference/security.md"
    return "left out", {}, "penstock asks no LDAP or HTTP server"


def _mechanism(value: str) -> Outcome:
    if value in ("PLAIN", "AMQPLAIN", "EXTERNAL"):
        return "same", {}, "it is offered where it can work"
    if value == "ANONYMOUS":
        return "left out", {}, "set amqp.allow_anonymous"
    return "left out", {}, "penstock does not offer it"


def _login_from(value: str) -> Outcome:
    if value in ("distinguished_name", "common_name"):
        return "moved", {"tls.cert_login_from": value}, ""
    if value == "subject_alternative_name":
        return "same", {}, "ssl_cert_login_san_type says which"
    raise ValueError("it is distinguished_name, common_name or subject_alternative_name")


def _san(value: str) -> Outcome:
    names = {"dns": "san_dns", "email": "san_email", "uri": "san_uri"}
    if value not in names:
        return "left out", {}, "penstock reads names of the kinds dns, email and uri"
    return "moved", {"tls.cert_login_from": names[value]}, ""


_LOADED: Final = path("management.load_definitions")
_DISK_ONLY: Final = same("a backlog is on disk and costs no memory")
_ERLANG: Final = left("penstock has no Erlang machine")
_CLUSTER: Final = left("a cluster is set up otherwise: docs/how-to/cluster.md")
_PROXY: Final = choose(False, "no PROXY header is expected", "list the proxies in server.proxy_networks")
_MANAGEMENT: Final = left("the management API has no such option")
_TLS: Final = left("OpenSSL's defaults hold; see the section tls")

EXACT: Final[Mapping[str, Rule]] = {
    "auth_backends.$": _backend,
    "auth_backends.$.authn": _backend,
    "auth_backends.$.authz": _backend,
    "auth_mechanisms.$": _mechanism,
    "channel_max": count("amqp.channel_max", 1, 65_535, unlimited=65_535),
    "cluster_name": path("server.name"),
    "connection_max": _connections,
    "consumer_timeout": left("set a policy with consumer-timeout"),
    "default_pass": path("auth.default_password"),
    "default_user": path("auth.default_user"),
    "default_vhost": _only("/", "the first vhost is /; make others with penstock vhosts create"),
    "definitions.import_backend": left("see management.load_definitions"),
    "definitions.local.path": _LOADED,
    "definitions.skip_if_unchanged": left("equal things stay as they are"),
    "disk_free_limit.absolute": _disk,
    "disk_free_limit.relative": left("log.min_free_bytes is a part of the disk by default"),
    "frame_max": count("amqp.frame_max", 4096, 16 << 20, unlimited=16 << 20),
    "handshake_timeout": _milliseconds("server.login_timeout_s", 0.1, 3600),
    "heartbeat": count("amqp.heartbeat_s", 0, 65_535),
    "load_definitions": _LOADED,
    "log.console": choose(True, "log lines go to standard error", "log lines go to standard error"),
    "log.console.formatter": _formatter,
    "log.console.level": _level,
    "log.default.level": _level,
    "management.load_definitions": _LOADED,
    "management.rates_mode": _only("basic", "rates are basic"),
    "max_message_size": count("amqp.max_message_bytes", 1024, 512 << 20),
    "mqtt.allow_anonymous": switch("mqtt.allow_anonymous"),
    "mqtt.default_pass": left("clients without a user name are auth.default_user"),
    "mqtt.default_user": left("clients without a user name are auth.default_user"),
    "mqtt.exchange": _only("amq.topic", "the exchange of MQTT is amq.topic"),
    "mqtt.login_timeout": left("server.login_timeout_s holds for all protocols"),
    "mqtt.prefetch": count("mqtt.max_inflight", 1, 65_535),
    "mqtt.proxy_protocol": _PROXY,
    "mqtt.ssl_cert_login": switch("mqtt.cert_login"),
    "mqtt.subscription_ttl": _ttl,
    "mqtt.vhost": _only("/", "a client names another vhost as VHOST:USER"),
    "password_hashing_module": left("new passwords are hashed with scrypt; old hashes stay"),
    "proxy_protocol": _PROXY,
    "queue_index_embed_msgs_below": same("a message is stored once, whatever its size"),
    "ssl_allow_poodle_attack": choose(False, "SSL 3 is not spoken", "SSL 3 is not spoken"),
    "ssl_cert_login_from": _login_from,
    "ssl_cert_login_san_index": _only("0", "the first name counts"),
    "ssl_cert_login_san_type": _san,
    "ssl_handshake_timeout": left("server.login_timeout_s counts the TLS handshake, too"),
    "ssl_options.cacertfile": path("tls.ca_file"),
    "ssl_options.certfile": path("tls.cert_file"),
    "ssl_options.keyfile": path("tls.key_file"),
    "ssl_options.password": path("tls.key_password"),
    "vm_memory_high_watermark.absolute": _watermark_bytes,
    "vm_memory_high_watermark.relative": _watermark,
    "vm_memory_high_watermark_paging_ratio": _DISK_ONLY,
    "web_mqtt.proxy_protocol": _PROXY,
    "web_mqtt.ws_path": lambda value: ("moved", {"mqtt.ws_paths": [value]}, ""),
}
"""By name."""

FAMILIES: Final[Mapping[str, Rule]] = {
    "amqp1_0.": left("AMQP 1.0 is on amqp.listen; see docs/reference/amqp10.md"),
    "auth_cache.": left("right passwords are remembered for a minute"),
    "auth_http.": left("penstock asks no HTTP server"),
    "auth_oauth2.": left("set the section oauth, which needs the issuer: docs/reference/security.md"),
    "auth_ldap.": left("penstock asks no LDAP server"),
    "aws.": _CLUSTER,
    "background_gc": _ERLANG,
    "classic_queue.": same("all queues are stored alike"),
    "cluster_": _CLUSTER,
    "collect_statistics": same("counters are sampled every five seconds"),
    "credential_validator.": left("penstock does not judge new passwords"),
    "default_permissions.": left("the default user may do everything in /"),
    "default_user_tags.": left("the default user is an administrator"),
    "default_worker_pool_size": _ERLANG,
    "definitions.": left("management.load_definitions is a file"),
    "delegate_count": _ERLANG,
    "distribution.": _ERLANG,
    "erlang.": _ERLANG,
    "event_exchange.": left("see events.kinds and the audit trail"),
    "hipe_compile": _ERLANG,
    "initial_frame_max": same("frames before the login may have 8 KiB"),
    "log.": left("log lines go to standard error; the service manager keeps them"),
    "management.": _MANAGEMENT,
    "management_agent.": _MANAGEMENT,
    "memory_monitor_interval": same("memory is looked at once a second"),
    "message_store_shutdown_timeout": left("server.drain_timeout_s bounds a stop"),
    "mirroring_": _CLUSTER,
    "mnesia_": _ERLANG,
    "motd_file": left("a start prints no banner"),
    "mqtt.durable_queue_type": same("sessions are on disk"),
    "mqtt.num_acceptors": _ERLANG,
    "mqtt.retained_message_store": same("retained messages are in the log"),
    "mqtt.sparkplug": left("topics of Sparkplug are ordinary ones"),
    "mqtt.tcp_listen_options": left("sockets are set up by penstock"),
    "net_ticktime": _ERLANG,
    "num_acceptors": _ERLANG,
    "product.": left("the gateway says its own name"),
    "prometheus.": left("the metrics have no such option"),
    "queue_leader_locator": _CLUSTER,
    "queue_master_locator": _CLUSTER,
    "quorum_queue.": same("all queues are stored alike, with checksums"),
    "raft.": _CLUSTER,
    "reverse_dns_lookups": choose(False, "peers are shown by address", "peers are shown by address"),
    "socket_writer.": _ERLANG,
    "ssl_options": _TLS,
    "stomp.": left("penstock does not speak STOMP"),
    "stream.": left("penstock does not speak RabbitMQ's stream protocol; streams are read over AMQP"),
    "sysmon_handler.": _ERLANG,
    "tcp_listen_options": left("sockets are set up by penstock"),
    "total_memory_available_override_value": left("the limit of the control group counts"),
    "trust_store.": left("put the certificates into tls.ca_file"),
    "vhost_restart_strategy": _ERLANG,
    "vm_memory_calculation_strategy": same("the resident memory counts"),
    "web_mqtt.": left("WebSocket listeners have no such option"),
    "web_stomp.": left("penstock does not speak STOMP"),
}
"""By the beginning of the name; the longest counts."""
