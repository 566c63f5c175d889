"""Traces of OpenTelemetry: a span for each send and each handling, joined by the W3C context in the headers.

client = penstock.connect(url, tracing=penstock.OpenTelemetry())

`send`, `send_nowait` and a transaction's `send` put the context into the message's headers;
`message.process()` and `workers` run the block in a span that is a child of the sender's. Messages of
`send_many` have none: they have no headers. The gateway passes contexts on unchanged, to AMQP, MQTT 5 and
HTTP as well.

Names and attributes: OpenTelemetry's semantic conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.sdk.errors import ClientError

if TYPE_CHECKING:
    from penstock.sdk.message import Message

__all__ = ["OpenTelemetry", "Tracing"]


class Tracing(Protocol):
    """The methods of a tracer that a client calls."""

    def sending(self, place: str, headers: MutableMapping[str, Any]) -> AbstractContextManager[object]:
        """A block in which a message is sent to `place`; puts the context into its headers."""

    def handling(self, place: str, message: Message[Any]) -> AbstractContextManager[object]:
        """A block in which a message of `place` is handled."""


class OpenTelemetry:
    """See the module."""

    def __init__(self, provider: Any = None) -> None:
        """`provider`: a TracerProvider; None: the global one.

        Raises:
            ClientError: opentelemetry-api is not installed.

        """
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            raise ClientError(
                "tracing needs OpenTelemetry", remedy="install it: pip install opentelemetry-sdk"
            ) from error
        from penstock import __version__

        self._kinds = trace.SpanKind
        self._tracer = trace.get_tracer("penstock", __version__, provider)
        self._context = TraceContextTextMapPropagator()

    @contextmanager
    def sending(self, place: str, headers: MutableMapping[str, Any]) -> Iterator[None]:
        """See `Tracing`."""
        attributes = {**_attributes(place, "send")}
        with self._tracer.start_as_current_span(
            f"send {place}", kind=self._kinds.PRODUCER, attributes=attributes
        ):
            self._context.inject(headers)
            yield

    @contextmanager
    def handling(self, place: str, message: Message[Any]) -> Iterator[None]:
        """See `Tracing`."""
        attributes = {
            **_attributes(place, "process"),
            "messaging.message.id": str(message.id),
            "messaging.message.body.size": len(message.body),
        }
        with self._tracer.start_as_current_span(
            f"process {place}",
            context=self._context.extract(message.trace),
            kind=self._kinds.CONSUMER,
            attributes=attributes,
        ):
            yield


def _attributes(place: str, operation: str) -> Mapping[str, Any]:
    return {
        "messaging.system": "penstock",
        "messaging.destination.name": place,
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
    }
