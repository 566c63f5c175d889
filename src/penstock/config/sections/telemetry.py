"""The section `telemetry`: traces and metrics for a collector of OpenTelemetry."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import BadValue, Names, Part, Seconds, Text, option
from penstock.lazy_dataclass import dataclass

__all__ = ["Telemetry"]


@dataclass(frozen=True)
class Endpoint(Text):
    """A URL of http or https, without a query; "" is none."""

    def from_value(self, value: object) -> str:
        url = super().from_value(value).rstrip("/")
        if url and (not url.startswith(("http://", "https://")) or "?" in url or "#" in url):
            raise BadValue(f"{url!r} is no URL of a collector", 'write it as "http://127.0.0.1:4318"')
        return url


@dataclass(frozen=True)
class Headers(Names):
    """A list of NAME=VALUE; the first `=` counts."""

    def from_value(self, value: object) -> tuple[str, ...]:
        headers = super().from_value(value)
        for header in headers:
            name, equals, _ = header.partition("=")
            if not name.strip() or not equals:
                raise BadValue("a header is not NAME=VALUE", 'write it as "authorization=Bearer TOKEN"')
        return headers

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.from_value(list(super().from_text(text)))

    def range(self) -> str:
        return "a list of NAME=VALUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Traces and metrics over OTLP; see docs/how-to/opentelemetry.md. It needs the extra `otel`."""

    endpoint: str = field(
        default="",
        metadata=option(
            Endpoint("a URL"),
            "Where the collector takes OTLP over HTTP: /v1/metrics and /v1/traces are put behind it. "
            "Empty: nothing is sent.",
            when="a collector of OpenTelemetry shall get metrics and traces",
        ),
    )
    headers: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Headers(),
            "Headers of the requests to the collector.",
            when="the collector wants a login",
            secret=True,
        ),
    )
    ca_file: str = field(
        default="",
        metadata=option(
            Text("a file"),
            "Certificates, in PEM, by which that of the collector is checked; empty: those of the package "
            "certifi.",
            when="the collector has a certificate of your own",
        ),
    )
    message_ratio: float = field(
        default=0.001,
        metadata=option(
            Part(),
            "The part of the messages that are traced from their publishing to their acknowledgement. "
            "0 = none; requests to the management API are traced anyway.",
            when="you want to see more messages, or none",
        ),
    )
    metrics_every_s: float = field(
        default=60.0,
        metadata=option(
            Seconds(1, 3600), "How often metrics are sent.", when="your collector expects another interval"
        ),
    )
