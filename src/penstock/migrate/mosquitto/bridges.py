"""Converts the bridges of a mosquitto.conf into `links.bridges`, line by line.

A line `connection` begins a bridge; the lines behind it that are about bridges are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.config.bridges import Bridges
from penstock.config.kinds import BadValue
from penstock.lazy_dataclass import dataclass
from penstock.migrate.mosquitto.conf import Setting
from penstock.migrate.report import Report
from penstock.migrate.rules import flag, number

__all__ = ["convert"]

_OPTION: Final = "links.bridges"
_TEXTS: Final[Mapping[str, str]] = {
    "bridge_protocol_version": "protocol_version",
    "clientid": "remote_clientid",
    "local_clientid": "local_clientid",
    "local_username": "local_username",
    "notification_topic": "notification_topic",
    "password": "remote_password",
    "remote_clientid": "remote_clientid",
    "remote_password": "remote_password",
    "remote_username": "remote_username",
    "username": "remote_username",
}
_FILES: Final[Mapping[str, str]] = {
    "bridge_cafile": "cafile",
    "bridge_certfile": "certfile",
    "bridge_keyfile": "keyfile",
}
_FLAGS: Final[Mapping[str, str]] = {
    "bridge_insecure": "insecure",
    "bridge_outgoing_retain": "outgoing_retain",
    "cleansession": "cleansession",
    "notifications": "notifications",
    "notifications_local_only": "notifications_local_only",
    "try_private": "try_private",
}
_SAME: Final[Mapping[str, str]] = {
    "bridge_tls_version": "OpenSSL chooses the best version",
    "local_password": "the gateway asks no password of its own user",
}
_LEFT: Final[Mapping[str, str]] = {
    "bridge_alpn": "no protocol name is sent",
    "bridge_attempt_unsubscribe": "the bridge subscribes to what it needs, and unsubscribes from nothing",
    "bridge_bind_address": "the system chooses the address",
    "bridge_capath": "put the certificates into one file: cafile",
    "bridge_identity": "penstock has no pre-shared keys; use certificates",
    "bridge_max_packet_size": "the other broker says its largest packet, with MQTT 5",
    "bridge_psk": "penstock has no pre-shared keys; use certificates",
    "bridge_require_ocsp": "certificates are checked without OCSP",
    "idle_timeout": "a bridge is always connected",
    "local_cleansession": "cleansession holds for both sides",
    "round_robin": "a bridge has one address",
    "threshold": "a bridge is always connected",
}


_VERSION: Final = "mqttv311"
"""The version that a Mosquitto speaks if it is not told."""


@dataclass(slots=True)
class _Bridge:
    """One bridge as far as it is read."""

    first: Setting
    table: dict[str, Any]


def convert(settings: list[Setting], report: Report) -> None:
    """Note the fate of each line about bridges, and set the option."""
    bridges: list[_Bridge] = []
    for one in settings:
        if one.name == "connection":
            bridges.append(_Bridge(one, {"name": one.value, "topics": [], "protocol_version": _VERSION}))
            report.add(one.place, one.text, "moved", f"{_OPTION}: name")
        elif not bridges:
            report.add(one.place, one.text, "wrong", "no line connection is before it")
        else:
            _read(bridges[-1].table, one, report)
    tables = []
    for bridge in bridges:
        try:
            Bridges().from_value([bridge.table])
        except BadValue as error:
            report.add(bridge.first.place, bridge.first.text, "wrong", error.message)
        else:
            tables.append(bridge.table)
    if tables:
        report.options[_OPTION] = tables


def _read(table: dict[str, Any], one: Setting, report: Report) -> None:
    """One line of a bridge."""
    try:
        note = _taken(table, one)
    except ValueError as error:
        report.add(one.place, one.text, "wrong", str(error))
        return
    if note is not None:
        report.add(one.place, one.text, "moved", f"{_OPTION}: {note}")
    elif one.name in _SAME or one.name == "start_type":
        report.add(one.place, one.text, "same", _SAME.get(one.name, "a bridge is always connected"))
    else:
        report.add(one.place, one.text, "left out", _LEFT[one.name])


def _taken(table: dict[str, Any], one: Setting) -> str | None:
    """The key that a line has become, with a note; None: it becomes none. Raises ValueError."""
    value = one.value
    if one.name in ("address", "addresses"):
        first, *more = value.split() or [""]
        table["address"] = first if ":" in first else f"{first}:1883"
        return "address" + (f"; left out: {' '.join(more)}, for a bridge has one address" if more else "")
    if one.name == "topic":
        table["topics"].append(value)
        return "topics"
    if one.name in _TEXTS:
        table[_TEXTS[one.name]] = value
        return _TEXTS[one.name]
    if one.name in _FILES:
        table[_FILES[one.name]] = value
        table["tls"] = True
        return f"{_FILES[one.name]}, tls"
    if one.name in _FLAGS:
        table[_FLAGS[one.name]] = flag(value)
        return _FLAGS[one.name]
    if one.name == "keepalive_interval":
        table["keepalive_interval"] = number(value, 5, 65535)
        return "keepalive_interval"
    if one.name == "restart_timeout":
        table["restart_timeout"] = number(value.split()[0] if value else "", 0, 3600)
        return "restart_timeout; pauses double up to a minute"
    return None
