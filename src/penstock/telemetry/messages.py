"""Spans of the messages in the sample: published, handed to consumers, acknowledged.

    publish EXCHANGE                    when the gateway had it, without a length
        deliver QUEUE                   from then on, or from when it was given back, until a consumer got it
        ack | requeue | drop | dead_letter QUEUE
                                        from that delivery on; without one from the publishing on

All spans of a message are in one trace: that of its header `traceparent`, or one of its own. A message whose
publishing was not seen has none: one from before the start, a delayed or dead-lettered one, or one of more
than `_KNOWN_MAX` before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import MQTT5, RECORDS, Record
from penstock.protocols.properties.blocks import decode_key

if TYPE_CHECKING:
    from penstock.log_core.reading._tail import Cache
    from penstock.subscriptions.cursor._events import Traced

__all__ = ["Messages"]

_KNOWN_MAX: Final = 10_000
_CONTEXT: Final = TraceContextTextMapPropagator()
_TRACE_HEADERS: Final = ("traceparent", "tracestate")


@dataclass(slots=True)
class _Known:
    """A message of which more may come."""

    context: Context
    """That of its span of publishing."""
    since_ns: int
    """When it was published."""
    turns_ns: dict[str, int]
    """When it was delivered, or given back, last: by queue."""


class Messages:
    """See the module. `headers_of` decodes the headers of a message."""

    def __init__(
        self, tracer: Tracer, cache: Cache, headers_of: Callable[[Record], Mapping[str, Any]]
    ) -> None:
        self._tracer = tracer
        self._cache = cache
        self._headers_of = headers_of
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def take(self, events: list[Traced]) -> None:
        """Make spans of events, in their order."""
        for at_ns, kind, position, redelivered, vhost, queue, connection, user, detail in events:
            more: dict[str, Any] = {"penstock.vhost": vhost}
            if connection:
                more["penstock.connection"] = connection
            if kind == "publish":
                self._published(position, at_ns, {**more, "user.name": user, "network.protocol.name": detail})
                continue
            if kind == "deliver":
                more["penstock.redelivered"] = redelivered
            if detail:
                more["penstock.reason"] = detail
            known = self._known.get(position)
            if known is not None:
                began_ns = known.turns_ns.get(queue, known.since_ns)
                known.turns_ns[queue] = at_ns
                self._span(kind, queue, position, known.context, began_ns, at_ns, more)

    def _published(self, position: int, at_ns: int, more: dict[str, Any]) -> None:
        record = self._record(position)
        if record is None:
            return  # no message, but what the gateway noted beside it; or one that left memory already
        if record.enc == MQTT5:
            place, key = record.key.decode("utf-8", "replace"), ""
        else:
            place, key = ((one or b"").decode("utf-8", "replace") for one in decode_key(record.key))
        more["messaging.message.body.size"] = len(record.body)
        if key:
            more["messaging.rabbitmq.destination.routing_key"] = key
        headers = self._headers_of(record)
        carrier = {name: text for name in _TRACE_HEADERS if isinstance(text := headers.get(name), str)}
        parent = _CONTEXT.extract(carrier, Context())
        context = self._span("publish", place, position, parent, at_ns, at_ns, more)
        self._known[position] = _Known(context, at_ns, {})
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)

    def _record(self, position: int) -> Record | None:
        batch = self._cache.get(position)
        return None if batch is None or batch.kind != RECORDS else batch.record(position - batch.base_lsn)

    def _span(
        self,
        operation: str,
        place: str,
        position: int,
        parent: Context,
        began_ns: int,
        ended_ns: int,
        more: dict[str, Any],
    ) -> Context:
        """Make a span of the past; the context of it."""
        span = self._tracer.start_span(
            f"{operation} {place}".rstrip(),
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes={
                "messaging.system": "penstock",
                "messaging.operation.name": operation,
                "messaging.destination.name": place,
                "messaging.message.id": f"0:{position}",
                **more,
            },
            start_time=began_ns,
        )
        span.end(ended_ns)
        return trace.set_span_in_context(span, Context())
