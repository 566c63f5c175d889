"""Converts rabbitmq.conf: one setting a line, `name = value`; `#` begins a comment.

Some settings make one option together: ports with their addresses, the lists of loopback users, ciphers and
versions, and the two about client certificates. They are collected first; the rest goes by `settings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.files import text_of
from penstock.migrate.rabbitmq.settings import EXACT, FAMILIES
from penstock.migrate.report import Place, Report
from penstock.migrate.rules import Outcome, Rule, apply_rule, flag

__all__ = ["convert"]

_NAMED_LISTENER: Final = re.compile(r"(mqtt\.)?listeners\.(tcp|ssl)(\.[^.]+)?")
_PLACES: Final[Mapping[str, str]] = {
    "management.tcp": "management.listen",
    "management.listener": "management.listen",
    "management.ssl": "management.tls_listen",
    "prometheus.tcp": "metrics.listen",
    "web_amqp.tcp": "amqp.ws_listen",
    "web_amqp.ssl": "amqp.wss_listen",
    "web_mqtt.tcp": "mqtt.ws_listen",
    "web_mqtt.ssl": "mqtt.wss_listen",
}
"""Listeners whose `port`, `ip` and `listener` are settings of their own."""
_SECRETS: Final = ("pass", "password", "secret_key", "acl_token")


@dataclass(frozen=True, slots=True)
class _Setting:
    place: Place
    name: str
    value: str

    @property
    def text(self) -> str:
        secret = self.name.rpartition(".")[2] in _SECRETS or self.name.endswith("_pass")
        return f"{self.name} = {'********' if secret else self.value}"


def convert(path: Path) -> Report:
    """The fate of each line, and the options.

    Raises:
        MigrationError: the file cannot be read.

    """
    report = Report()
    text = text_of(path, "name a rabbitmq.conf")
    settings: list[_Setting] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        name, equals, value = words.partition("=")
        place = Place(str(path), number)
        if not equals:
            report.add(place, words, "wrong", "a line is NAME = VALUE")
            continue
        settings.append(_Setting(place, name.strip(), value.strip().strip("'")))
    # Of one name the last line counts.
    values = {one.name: one.value for one in settings}
    last = {one.name: one for one in settings}
    for one in settings:
        if one is not last[one.name]:
            report.add(one.place, one.text, "left out", f"{last[one.name].place} sets it again")
        else:
            apply_rule(report, one.place, one.text, one.value, _rule(one.name, values))
    report.entries.sort(key=lambda entry: entry.place.line)
    return report


def _rule(name: str, values: Mapping[str, str]) -> Rule:
    if found := _NAMED_LISTENER.fullmatch(name):
        kind = "tls_listen" if found[2] == "ssl" else "listen"
        key = f"{'mqtt' if found[1] else 'amqp'}.{kind}"
        return lambda value: ("moved", {key: _address(value)}, "")
    listener, _, part = name.rpartition(".")
    if listener in _PLACES and part in ("port", "ip", "listener"):
        return lambda value: _place(listener, part, value, values)
    if name.split(".")[0] == "loopback_users":
        return lambda _: ("moved", {"auth.loopback_users": _loopback(values)}, "")
    if name in ("ssl_options.verify", "ssl_options.fail_if_no_peer_cert"):
        return lambda _: ("moved", {"tls.verify_client": _verify(values)}, "")
    if name.startswith("ssl_options.versions."):
        return lambda _: ("moved", {"tls.min_version": _version(values)}, "")
    if name.startswith("ssl_options.ciphers."):
        return lambda _: ("moved", {"tls.ciphers": ":".join(_all("ssl_options.ciphers.", values))}, "")
    exact = EXACT.get(name) or EXACT.get(re.sub(r"^(auth_backends|auth_mechanisms)\.[^.]+", r"\1.$", name))
    if exact is not None:
        return exact
    family = max((one for one in FAMILIES if name.startswith(one)), key=len, default="")
    if family:
        return FAMILIES[family]
    return lambda _: ("unknown", {}, "RabbitMQ 3.10 has no such setting")


def _address(value: str) -> str:
    """A listener: PORT, or HOST:PORT, or none."""
    if value == "none":
        return ""
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("it is PORT or HOST:PORT")
    host = host.strip("[]") or "0.0.0.0"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place(listener: str, part: str, value: str, values: Mapping[str, str]) -> Outcome:
    """A part of a listener: the port makes it, and takes the address."""
    key = _PLACES[listener]
    if part == "listener":
        return "moved", {key: _address(value)}, ""
    if part == "port":
        host = values.get(f"{listener}.ip", "")
        return "moved", {key: _address(f"[{host}]:{value}" if host else value)}, ""
    if f"{listener}.port" in values:
        return "moved", {key: _place(listener, "port", values[f"{listener}.port"], values)[1][key]}, ""
    return "left out", {}, f"no {listener}.port is set; write HOST:PORT into {key}"


def _all(beginning: str, values: Mapping[str, str]) -> list[str]:
    return [value for name, value in values.items() if name.startswith(beginning)]


def _loopback(values: Mapping[str, str]) -> list[str]:
    if values.get("loopback_users") == "none":
        return []
    users = {"guest"}
    for name, value in values.items():
        user = name.partition("loopback_users.")[2]
        if user:
            (users.add if flag(value) else users.discard)(user)
    return sorted(users)


def _verify(values: Mapping[str, str]) -> str:
    if values.get("ssl_options.verify", "verify_none") == "verify_none":
        return "none"
    return "required" if flag(values.get("ssl_options.fail_if_no_peer_cert", "false")) else "optional"


def _version(values: Mapping[str, str]) -> str:
    versions = _all("ssl_options.versions.", values)
    return "1.3" if set(versions) == {"tlsv1.3"} else "1.2"
