"""Reasons why a policy key, and the queue argument of its name, has no effect in penstock."""

from __future__ import annotations

from typing import Final

__all__ = ["EFFECTLESS_REASONS", "without_effect"]

_MIRROR: Final = "penstock does not mirror queues; a cluster keeps the whole log (docs/how-to/cluster.md)"
_MEMORY: Final = "a backlog is on disk and costs no memory"
_PLACE: Final = "a queue has no leader among nodes"

EFFECTLESS_REASONS: Final = {
    "ha-mode": _MIRROR,
    "ha-params": _MIRROR,
    "ha-promote-on-failure": _MIRROR,
    "ha-promote-on-shutdown": _MIRROR,
    "ha-sync-batch-size": _MIRROR,
    "ha-sync-mode": _MIRROR,
    "initial-cluster-size": _PLACE,
    "max-in-memory-bytes": _MEMORY,
    "max-in-memory-length": _MEMORY,
    "queue-leader-locator": _PLACE,
    "queue-master-locator": _PLACE,
    "queue-mode": _MEMORY,
    "queue-version": "all queues are stored alike",
    "stream-filter-size-bytes": "streams are filtered without an index of that size",
    "stream-max-segment-size-bytes": "all streams share segments: log.segment_bytes",
    "target-group-size": _PLACE,
}
"""By the key of a policy; total over `penstock.router.policies.definitions.EFFECTLESS`."""


def without_effect(names: list[str]) -> list[tuple[str, str]]:
    """(name, reason) of those keys of policies, or arguments of queues, that do nothing."""
    return [
        (name, EFFECTLESS_REASONS[key])
        for name in names
        if (key := name.removeprefix("x-")) in EFFECTLESS_REASONS
    ]
