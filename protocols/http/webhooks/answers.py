"""The shape of a webhook in answers (`shared.shapes`), for the OpenAPI documents of both APIs."""

from __future__ import annotations

from typing import Final

from penstock.protocols.http.shared.shapes import Choice, Shape
from penstock.protocols.http.webhooks.endpoint import STATES, Outcome

__all__ = ["WEBHOOK"]

WEBHOOK: Final[dict[str, Shape]] = {
    "name": str,
    "vhost": str,
    "user": str,
    "source": {str: str},
    "url": str,
    "method": str,
    "headers": {str: str},
    "format": str,
    "ordering": str,
    "ordering_key": str,
    "max_inflight": int,
    "timeout_ms": int,
    "batch": {"max_messages": int, "max_bytes": int, "linger_ms": int},
    "filter": {"routing_key": str, "headers": dict, "types": [str]},
    "retry": {"schedule_ms": [int], "max_age_ms": int, "refused_attempts": int},
    "disable_after_ms": int,
    "verify": str,
    "auth": {str: str},
    "signing": str,
    "public_key": (str, None),
    "secrets": int,
    "state": Choice(*STATES),
    "reason": str,
    "backlog": int,
    "held": int,
    "in_flight": int,
    "concurrency": int,
    "resting_ms": int,
    "dead": int,
    "requests": int,
    "results": {one.value: int for one in Outcome},
    "p50_ms": (float, None),
    "p99_ms": (float, None),
    "delivered": int,
    "filtered": int,
    "last_status": int,
    "last_error": str,
    "last_at": int,
}
"""As `handlers.shown` makes it."""
