"""The option kind "list of certificates by host name"."""

from __future__ import annotations

from dataclasses import asdict

from penstock.config.kinds import BadValue, Kind, inline_tables, shown, toml_value
from penstock.lazy_dataclass import dataclass

__all__ = ["TlsHost", "TlsHosts"]

_EXAMPLE = 'write it as {name = "mqtt.example.org", cert_file = "...", key_file = "..."}'


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsHost:
    """One certificate."""

    name: str
    """The name asked for; "*.example.org" stands for any one label in front."""
    cert_file: str
    key_file: str = ""
    """"" = the key is in `cert_file`."""


@dataclass(frozen=True)
class TlsHosts(Kind):
    """A list of certificates; as text, a TOML array of inline tables."""

    def from_value(self, value: object) -> tuple[TlsHost, ...]:
        if not isinstance(value, list):
            raise BadValue(f"{shown(value)} is not a list of certificates", _EXAMPLE)
        hosts: list[TlsHost] = []
        for entry in value:
            if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
                raise BadValue(f"{shown(entry)} is not a certificate", _EXAMPLE)
            if {"name", "cert_file"} - entry.keys() or entry.keys() - {"name", "cert_file", "key_file"}:
                raise BadValue("a certificate has name, cert_file and key_file", _EXAMPLE)
            host = TlsHost(**entry)
            if any(host.name.lower() == other.name.lower() for other in hosts):
                raise BadValue(f"the host {host.name!r} is given twice", "remove one of them")
            hosts.append(host)
        return tuple(hosts)

    def from_text(self, text: str) -> tuple[TlsHost, ...]:
        return self.from_value(toml_value(text))

    def schema(self) -> dict[str, object]:
        text = {"type": "string"}
        host = {
            "type": "object",
            "properties": {"name": text, "cert_file": text, "key_file": text},
            "required": ["name", "cert_file"],
            "additionalProperties": False,
        }
        return {"type": "array", "items": host}

    def range(self) -> str:
        return "tables of name, cert_file, key_file"

    def plain(self, value: object) -> object:
        assert isinstance(value, tuple)
        return [asdict(host) for host in value]

    def toml(self, value: object) -> str:
        plain = self.plain(value)
        assert isinstance(plain, list)
        return inline_tables(plain)
