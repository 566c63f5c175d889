"""The metrics of the page /metrics as values, with their whole names: for exporters that push them."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.metrics import node, objects, totals
from penstock.protocols.http.metrics.exposition import Histogram, Metric
from penstock.protocols.http.metrics.own import own

__all__ = ["exported"]


def exported(api: Management) -> Iterator[Metric | Histogram]:
    """All of them but the identity of the gateway, which an exporter tells otherwise."""
    for one in objects.aggregated(api, api.registry.connections(), totals.totals(api)):
        yield one._replace(name=f"rabbitmq_{one.name}")
    yield from own(api)
    yield from node.started(api)
