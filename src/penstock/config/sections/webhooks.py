"""The section `webhooks`: where requests to webhooks may go."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import BadValue, Names, Networks, Switch, Text, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Webhooks"]


@dataclass(frozen=True)
class Ports(Names):
    """A list of port numbers."""

    def from_value(self, value: object) -> tuple[int, ...]:  # type: ignore[override]
        if not isinstance(value, list) or not all(
            isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536 for port in value
        ):
            raise BadValue("this is no list of port numbers", "write it as [80, 443]")
        return tuple(value)

    def from_text(self, text: str) -> tuple[int, ...]:  # type: ignore[override]
        parts = [part.strip() for part in text.strip().strip("[]").split(",") if part.strip()]
        return self.from_value([int(part) if part.isascii() and part.isdigit() else part for part in parts])

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}

    def range(self) -> str:
        return "port numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """Webhooks push messages to URLs; see docs/reference/webhooks.md. You make them over HTTP."""

    allow_networks: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Networks(),
            "Networks that webhooks may reach although they are private, at any port and without TLS. "
            "Everything that is not a public address is refused otherwise.",
            when="receivers are in your own network",
        ),
    )
    refuse_networks: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Networks(),
            "Networks that webhooks may not reach although they are public: your own servers, and NAT64 "
            "prefixes of your own.",
            when="your own servers have public addresses",
        ),
    )
    allow_http: bool = field(
        default=False,
        metadata=option(
            Switch(), "Whether URLs may begin with http:// everywhere.", when="a receiver has no TLS"
        ),
    )
    ports: tuple[int, ...] = field(
        default=(80, 443),
        metadata=option(
            Ports(), "Ports that webhooks may go to at public addresses.", when="a receiver has another port"
        ),
    )
    ca_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "Authorities that are trusted besides the system's, as PEM.",
            when="a receiver's certificate is from an authority of your own",
        ),
    )
    key_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "A key of 32 bytes, as they are or in base64: secrets and headers of webhooks are sealed with it "
            "in the log (AES-256-GCM). A second line may have the key of before. Lost with it are the "
            'secrets, and the gateway does not start. "" = they lie in the log as they are.',
            when="backups of the data folder must not contain the secrets",
        ),
    )
    origin: str = field(
        default="",
        metadata=option(
            Text(),
            "What receivers are asked to allow (WebHook-Request-Origin): your domain. "
            '"" = the name of this machine.',
            when="receivers check the origin",
        ),
    )
