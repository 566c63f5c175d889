"""The text format of Prometheus: metrics with their help, types and labelled values.

# TYPE name kind
# HELP name help
name{label="value",...} number
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

__all__ = ["CONTENT_TYPE", "Histogram", "Kind", "Metric", "head", "labels_of", "of_one", "sample", "written"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram", "untyped"]

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Metric(NamedTuple):
    """A whole metric, without the prefix of the page it goes on."""

    name: str
    kind: Kind
    text: str
    values: Iterable[tuple[Mapping[str, str], float]]
    """With their labels."""


class Histogram(NamedTuple):
    """A metric with one histogram, without the prefix of the page it goes on."""

    name: str
    text: str
    labels: Mapping[str, str]
    bounds: Sequence[str]
    """The upper bounds of its buckets, as the page shows them; one more bucket has none."""
    counts: Sequence[int]
    """Of each bucket alone."""
    total: float
    """The sum of all values."""


def of_one(name: str, kind: Kind, text: str, value: float) -> Metric:
    """A metric with one value and no labels."""
    return Metric(name, kind, text, [({}, value)])


def written(prefix: str, metrics: Iterable[Metric | Histogram]) -> Iterator[str]:
    """Their texts."""
    for one in metrics:
        if isinstance(one, Histogram):
            yield _histogram(prefix + one.name, one)
        else:
            lines = [head(prefix + one.name, one.kind, one.text)]
            lines += [sample(prefix + one.name, value, labels_of(labels)) for labels, value in one.values]
            yield "".join(lines)


def _histogram(name: str, one: Histogram) -> str:
    lines = [head(name, "histogram", one.text)]
    for bound, count in zip((*one.bounds, "+Inf"), accumulate(one.counts), strict=True):
        lines.append(sample(f"{name}_bucket", count, labels_of({**one.labels, "le": bound})))
    lines.append(sample(f"{name}_sum", one.total, labels_of(one.labels)))
    lines.append(sample(f"{name}_count", sum(one.counts), labels_of(one.labels)))
    return "".join(lines)


def head(name: str, kind: Kind, text: str) -> str:
    """The two lines before the values of a metric."""
    return f"# TYPE {name} {kind}\n# HELP {name} {text}\n"


def labels_of(labels: Mapping[str, str]) -> str:
    """Labels in braces; "" without any. Names that are no UTF-8 come with replacement characters."""
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_clean(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def sample(name: str, value: float, labels: str = "") -> str:
    """One value; `labels` is what `labels_of` gave."""
    if isinstance(value, float) and not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    else:
        shown = repr(value) if isinstance(value, float) else str(value)
    return f"{name}{labels} {shown}\n"


def _clean(value: str) -> str:
    text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.translate(_ESCAPES)
