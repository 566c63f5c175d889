"""Sends traces and metrics to a collector, by the SDK of OpenTelemetry.

The loop makes spans and reads metrics. Two threads send them: the SDK's for spans, one here for metrics. A
collector that does not answer slows nobody: spans wait in a queue of 2,048, and what does not fit is gone;
metrics that are still being sent are not sent again. The SDK logs what it could not send.

The SDK also reads environment variables, such as OTEL_RESOURCE_ATTRIBUTES. The configuration has precedence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from threading import Thread
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock import __version__
from penstock.protocols.http.metrics.exposition import Histogram, Metric
from penstock.subscriptions.cursor import _events as events
from penstock.telemetry.messages import Messages
from penstock.telemetry.metrics import metrics_data
from penstock.telemetry.requests import traced

if TYPE_CHECKING:
    from penstock.config.sections.telemetry import Telemetry
    from penstock.protocols.http.server.routes import Handler
    from penstock.router.broker import Broker

__all__ = ["Exporter"]

logger: Final = logging.getLogger("penstock.telemetry")

_LOOK_S: Final = 0.1
"""How often events of messages become spans; their messages must still be in memory then."""
_ANSWER_S: Final = 10.0
_STOP_S: Final = 5.0


class Exporter:
    """See the module. `serve` begins, when the HTTP front end knows it; `close` sends the rest."""

    def __init__(self, options: Telemetry, broker: Broker, instance: str) -> None:
        """`instance`: the name of this gateway among those that export."""
        self._options = options
        self._broker = broker
        self._resource = Resource.create(
            {
                "service.name": "penstock",
                "service.version": __version__,
                "service.instance.id": instance,
                "host.name": socket.gethostname(),
            }
        )
        self._scope = InstrumentationScope("penstock", __version__)
        headers = dict(_pair(one) for one in options.headers)
        ca_file = options.ca_file or None
        self._metrics = OTLPMetricExporter(
            f"{options.endpoint}/v1/metrics", ca_file, headers=headers, timeout=_ANSWER_S
        )
        spans = OTLPSpanExporter(f"{options.endpoint}/v1/traces", ca_file, headers=headers, timeout=_ANSWER_S)
        self._tracers = TracerProvider(ALWAYS_ON, self._resource, shutdown_on_exit=False)
        self._tracers.add_span_processor(BatchSpanProcessor(spans))
        self._tracer = self._tracers.get_tracer("penstock", __version__)
        headers_of = broker.headers_of
        assert headers_of is not None, "the composition root sets it"
        self._messages = Messages(self._tracer, broker.log.cache, headers_of)
        self._sending: Thread | None = None
        self._serves = False
        self._start_ns = time.time_ns()
        self._read: Callable[[], Iterable[Metric | Histogram]] = tuple

    # For the HTTP front end

    def around(self, method: str, path: str, handler: Handler) -> Handler:
        """The handler of a route of the management API, traced."""
        return traced(self._tracer, method, path, handler)

    def reads(self, metrics: Callable[[], Iterable[Metric | Histogram]]) -> None:
        """Send what it gives from now on."""
        self._read = metrics

    # Life

    def serve(self) -> None:
        """Trace messages, and send metrics, from now on."""
        self._serves = True
        tick = self._broker.tick
        events.trace(self._options.message_ratio)
        tick.every(self._options.metrics_every_s, self._send_metrics)
        if self._options.message_ratio:
            tick.every(_LOOK_S, self._look)

    def _look(self) -> None:
        found, missed = events.traced()
        self._messages.take(found)
        if missed:
            logger.warning("%d events of messages were not traced: lower telemetry.message_ratio", missed)

    def _send_metrics(self) -> None:
        if self._sending is not None and self._sending.is_alive():
            logger.warning("metrics are left out: the collector has not answered the last ones")
            return
        # A daemon: the end of the process waits for no collector.
        self._sending = Thread(target=self._metrics.export, args=(self._metrics_now(),), daemon=True)
        self._sending.start()

    def _metrics_now(self) -> MetricsData:
        return metrics_data(self._read(), self._resource, self._scope, self._start_ns, time.time_ns())

    async def close(self) -> None:
        """Send what there is, for some seconds at most."""
        metrics = None
        if self._serves:
            self._look()
            events.trace(0.0)
            metrics = self._metrics_now()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        Thread(target=self._send_rest, args=(metrics, loop, ended), daemon=True).start()
        try:
            async with asyncio.timeout(_STOP_S):
                await ended.wait()
        except TimeoutError:
            logger.warning("the collector has not answered: the last traces and metrics are lost")

    def _send_rest(
        self, metrics: MetricsData | None, loop: asyncio.AbstractEventLoop, ended: asyncio.Event
    ) -> None:
        self._tracers.shutdown()
        if metrics is not None:
            self._metrics.export(metrics)
        self._metrics.shutdown()
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(ended.set)


def _pair(header: str) -> tuple[str, str]:
    name, _, value = header.partition("=")
    return name.strip(), value.strip()
