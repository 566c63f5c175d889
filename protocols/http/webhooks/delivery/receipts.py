"""The meaning of a receiver's answer: an outcome, a wait, and the fate of each message of a batch.

    2xx             done. With a batch the body may settle one by one:
                    {"results": [{"id": ..., "status": "ack" | "retry" | "reject"}]}, in the order sent
    410             gone
    429, 503        throttled; Retry-After says how long
    408, 425, 5xx   failed
    3xx             failed: redirects are not followed, for they could lead anywhere
    other 4xx       refused

Source: CloudEvents HTTP webhook 1.0, section 2; Standard Webhooks 1.0; RFC 9110, 10.2.3 (Retry-After).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import orjson

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.client import Answer
from penstock.protocols.http.webhooks.endpoint import Outcome

__all__ = ["Receipt", "receipt_of"]

_FAILED: Final = frozenset({408, 425})


@dataclass(frozen=True, slots=True)
class Receipt:
    """See the module."""

    outcome: Outcome
    wait_s: float = 0.0
    refused: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()


def receipt_of(answer: Answer, count: int, now_s: float) -> Receipt:
    """Read the answer to a request with `count` messages."""
    status = answer.status
    wait_s = _retry_after(answer.headers.get("retry-after", ""), now_s)
    if 200 <= status < 300:
        refused, again = _results(answer.body, count) if count > 1 else (frozenset(), frozenset())
        return Receipt(Outcome.DONE, wait_s, refused, again)
    if status == 410:
        return Receipt(Outcome.GONE)
    if status in (429, 503):
        return Receipt(Outcome.THROTTLED, wait_s)
    if 400 <= status < 500 and status not in _FAILED:
        return Receipt(Outcome.REFUSED, wait_s)
    return Receipt(Outcome.FAILED, wait_s)


def _retry_after(text: str, now_s: float) -> float:
    """Seconds; 0 = it says nothing that can be read."""
    import email.utils  # here: few receivers answer with it

    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max((when - datetime.fromtimestamp(now_s, UTC)).total_seconds(), 0.0)


def _results(body: bytes, count: int) -> tuple[frozenset[int], frozenset[int]]:
    """Places refused, and places wanted again; a body that says nothing of it means that all are done."""
    nothing: frozenset[int] = frozenset()
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return nothing, nothing
    results = value.get("results") if isinstance(value, dict) else None
    if not isinstance(results, list) or len(results) != count:
        return nothing, nothing
    said = [one.get("status") if isinstance(one, dict) else None for one in results]
    return (
        frozenset(at for at, status in enumerate(said) if status == "reject"),
        frozenset(at for at, status in enumerate(said) if status == "retry"),
    )
