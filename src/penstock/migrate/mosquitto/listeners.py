"""Puts together the listeners of a mosquitto.conf: penstock has one of each kind.

A listener begins with `listener PORT [ADDRESS]`; `port` and `bind_address` are an older form for the first.
Its kind follows from its lines: with a certificate, `protocol websockets`, or a path instead of a port.
"""

from __future__ import annotations

from dataclasses import field

from penstock.lazy_dataclass import dataclass
from penstock.migrate.mosquitto.conf import Setting
from penstock.migrate.mosquitto.settings import LISTENER
from penstock.migrate.report import Report
from penstock.migrate.rules import apply_rule

__all__ = ["PLACES", "Listener"]

PLACES = frozenset({"listener", "port", "bind_address", "protocol", "socket_domain"})
"""Names of lines that say where and how a listener listens."""


@dataclass(slots=True)
class Listener:
    """One listener and its lines."""

    lines: list[Setting] = field(default_factory=list)

    def convert(self, report: Report) -> None:
        """Note the fate of its lines, and set its options."""
        first = next((line for line in self.lines if line.name in ("listener", "port")), None)
        for line in self.lines:
            if line is first:
                try:
                    report.move(line.place, line.text, {self._key(): self._address(line)})
                except ValueError as error:
                    report.add(line.place, line.text, "wrong", str(error))
            elif line.name in PLACES:
                self._place(report, line, first)
            else:
                apply_rule(report, line.place, line.text, line.value, LISTENER[line.name])

    def _place(self, report: Report, line: Setting, first: Setting | None) -> None:
        if line.name == "protocol" and line.value not in ("mqtt", "websockets"):
            report.add(line.place, line.text, "left out", "penstock has no such listener")
        elif first is None:
            report.add(line.place, line.text, "left out", "no listener or port line names its port")
        else:
            report.add(line.place, line.text, "moved", f"it is part of {self._key()}")

    def _value(self, name: str) -> str:
        return next((line.value for line in self.lines if line.name == name), "")

    def _is_unix(self) -> bool:
        return self._value("listener").startswith("0 ")

    def _key(self) -> str:
        if self._is_unix():
            return "mqtt.unix_listen"
        web = self._value("protocol") == "websockets"
        secure = bool(self._value("certfile"))
        return "mqtt." + ("wss_" if web and secure else "ws_" if web else "tls_" if secure else "") + "listen"

    def _address(self, line: Setting) -> str:
        number, _, host = line.value.partition(" ")
        host = host.strip()
        if self._is_unix():
            return host
        if not number.isdecimal() or not 0 < int(number) < 65_536:
            raise ValueError("it is a port from 1 to 65535")
        if line.name == "port":
            host = self._value("bind_address")
        if not host:
            host = "::" if self._value("socket_domain") == "ipv6" else "0.0.0.0"
        return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
