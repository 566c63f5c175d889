"""Metrics of the page /metrics as the SDK hands them to an exporter: cumulative since the start.

They keep their names. The SDK's own instruments are not used: they would count what the gateway has counted
already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as OtelHistogram
from opentelemetry.sdk.metrics.export import Metric as OtelMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock.protocols.http.metrics.exposition import Histogram, Metric

__all__ = ["metrics_data"]


def metrics_data(
    metrics: Iterable[Metric | Histogram],
    resource: Resource,
    scope: InstrumentationScope,
    start_ns: int,
    now_ns: int,
) -> MetricsData:
    """All of them, as of `now_ns`; counters count from `start_ns` on. Both in ns since the epoch."""
    found = [
        _histogram(one, start_ns, now_ns) if isinstance(one, Histogram) else _numbers(one, start_ns, now_ns)
        for one in metrics
    ]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, "")], "")])


def _numbers(one: Metric, start_ns: int, now_ns: int) -> OtelMetric:
    points = [NumberDataPoint(_clean(labels), start_ns, now_ns, value) for labels, value in one.values]
    data: Sum | Gauge = Gauge(points)
    if one.kind == "counter":
        data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return OtelMetric(one.name, one.text, "", data)


def _histogram(one: Histogram, start_ns: int, now_ns: int) -> OtelMetric:
    point = HistogramDataPoint(
        _clean(one.labels),
        start_ns,
        now_ns,
        sum(one.counts),
        one.total,
        list(one.counts),
        [float(bound) for bound in one.bounds],
        min=None,  # type: ignore[arg-type]  # not known: a collector gets none
        max=None,  # type: ignore[arg-type]
    )
    data = OtelHistogram([point], AggregationTemporality.CUMULATIVE)
    return OtelMetric(one.name, one.text, "", data)


def _clean(labels: Mapping[str, str]) -> dict[str, str]:
    """With replacement characters for names that are no UTF-8."""
    return {
        name: value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for name, value in labels.items()
    }
