"""Samples beside rates, where a request asks for them as RabbitMQ's page does.

    ?msg_rates_age=600&msg_rates_incr=5&lengths_age=...&data_rates_age=...&node_stats_age=...

Each `x_details` of the group then also has `samples` (newest first), their mean `avg`, and `avg_rate`, the
growth per second from the oldest to the newest one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.server.messages import HttpError

if TYPE_CHECKING:
    from penstock.protocols.http.management.history import History
    from penstock.protocols.http.server.messages import Request

__all__ = ["Curve", "add_samples"]

_SAMPLES_MAX: Final = 1000
_DETAILS: Final = "_details"


class Curve:
    """The counters of one object over time. `names`: one for each of `values`; "" is not shown."""

    def __init__(
        self, history: History, key: Hashable, levels: int, names: Sequence[str], values: Sequence[int]
    ) -> None:
        self._history = history
        self._key = key
        self._levels = levels
        self.names = names
        self._values = values

    def samples(self, age_s: int, step_s: int) -> list[tuple[int, Sequence[int]]]:
        """As `History.samples`."""
        return self._history.samples(self._key, self._levels, self._values, age_s, step_s)


def add_samples(request: Request, group: str, item: dict[str, Any], *curves: Curve) -> None:
    """Add samples to every `x_details` of `item` if the request asks for those of `group`.

    Counters of several curves are summed up by name. A counter without a curve is as at the start.

    Raises:
        HttpError: 400, the range is no range.

    """
    wanted = _range(request, group)
    if wanted is None:
        return
    age_s, step_s = wanted
    sums: dict[str, list[list[int]]] = {}
    for curve in curves:
        samples = curve.samples(age_s, step_s)
        for at, name in enumerate(curve.names):
            if not name:
                continue
            column = [[moment, values[at]] for moment, values in samples]
            known = sums.get(name)
            if known is None:
                sums[name] = column
            else:
                for mine, (_, more) in zip(known, column, strict=True):
                    mine[1] += more
    moments = [moment for moment, _ in curves[0].samples(age_s, step_s)] if curves else []
    for key, details in item.items():
        if key.endswith(_DETAILS) and isinstance(details, dict):
            name = key.removesuffix(_DETAILS)
            constant = item.get(name, 0)
            pairs = sums.get(name) or [[moment, constant] for moment in moments]
            details |= _told(pairs)


def _told(pairs: Sequence[Sequence[int]]) -> dict[str, Any]:
    rate = mean = 0.0
    if pairs:
        (newest, last), (oldest, first) = pairs[0], pairs[-1]
        mean = sum(value for _, value in pairs) / len(pairs)
        if newest > oldest:
            rate = (last - first) * 1000 / (newest - oldest)
    return {
        "samples": [{"sample": value, "timestamp": moment} for moment, value in pairs],
        "avg_rate": rate,
        "avg": mean,
    }


def _range(request: Request, group: str) -> tuple[int, int] | None:
    texts = request.parameter(f"{group}_age"), request.parameter(f"{group}_incr")
    if not any(texts):
        return None
    if not all(text.isascii() and text.isdigit() and len(text) < 8 for text in texts):
        raise HttpError(400, "bad_request", f"{group}_age and {group}_incr are numbers of seconds")
    age_s, step_s = int(texts[0]), int(texts[1])
    if not 1 <= step_s <= age_s or age_s // step_s > _SAMPLES_MAX:
        raise HttpError(
            400, "bad_request", f"{group}_age is 1 to {_SAMPLES_MAX} times {group}_incr, which is at least 1"
        )
    return age_s, step_s
