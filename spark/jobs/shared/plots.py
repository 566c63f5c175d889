"""Plots as SVG: areas over time and columns, both stacked. Colours are CSS classes of the page they stand in.

A plot is 1,080 wide in its own units and scales with the page; what a mark says is its tooltip.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

__all__ = ["Layer", "areas", "columns"]

_WIDTH: Final = 1080
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 28
_COLUMN_MAX: Final = 80
_SEEN: Final = 1.5
"""Height of a column that would be lower: a few among millions are shown, too."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800)


@dataclass(frozen=True)
class Layer:
    """One of what is stacked."""

    label: str
    css: str
    """Class of its marks."""
    values: Sequence[float]


def areas(
    times: Sequence[datetime],
    layers: Sequence[Layer],
    text: Callable[[float], str],
    height: int = 220,
    *,
    binary: bool = False,
) -> str:
    """Steps over windows of equal length that begin at `times`; `text` says a value.

    `binary`: the values on the axis are round in powers of two.
    """
    step = times[1] - times[0] if len(times) > 1 else timedelta(seconds=1)
    start, span = times[0], step * len(times)
    totals = _totals(layers)
    top, lines = _grid(max(totals, default=0.0), text, height, binary)
    inner = _WIDTH - _LEFT - _RIGHT

    def x(moment: datetime) -> float:
        return _LEFT + inner * ((moment - start) / span)

    def y(value: float) -> float:
        return _TOP + (height - _TOP - _BOTTOM) * (1 - value / top)

    base = [0.0] * len(times)
    for layer in layers:
        upper = [below + value for below, value in zip(base, layer.values, strict=True)]
        forth = [
            f"{x(moment + shift):.1f},{y(value):.1f}"
            for moment, value in zip(times, upper, strict=True)
            for shift in (timedelta(0), step)
        ]
        back = [
            f"{x(moment + shift):.1f},{y(value):.1f}"
            for moment, value in zip(reversed(times), reversed(base), strict=True)
            for shift in (step, timedelta(0))
        ]
        lines.append(f'<polygon class="{layer.css}" points="{" ".join([*forth, *back])}"/>')
        base = upper
    for moment in _moments(start, start + span):
        lines.append(f'<text class="x" x="{x(moment):.1f}" y="{height - 8}">{_clock(moment, span)}</text>')
    for index, moment in enumerate(times):
        said = [f"{moment:%Y-%m-%d %H:%M:%S} UTC"]
        said += [f"{layer.label}: {text(layer.values[index])}" for layer in layers if layer.values[index]]
        width = x(moment + step) - x(moment)
        lines.append(
            f'<rect class="tip" x="{x(moment):.1f}" y="{_TOP}" width="{width:.1f}" '
            f'height="{height - _TOP - _BOTTOM}"><title>{html.escape(chr(10).join(said))}</title></rect>'
        )
    return _svg(lines, height)


def columns(
    labels: Sequence[str], layers: Sequence[Layer], text: Callable[[float], str], height: int = 220
) -> str:
    """A column for each label."""
    top, lines = _grid(max(_totals(layers), default=0.0), text, height, False)
    slot = (_WIDTH - _LEFT - _RIGHT) / max(len(labels), 1)
    wide = min(slot * 0.7, _COLUMN_MAX)
    scale = (height - _TOP - _BOTTOM) / top
    for index, label in enumerate(labels):
        left, bottom = _LEFT + slot * (index + 0.5) - wide / 2, float(height - _BOTTOM)
        for layer in layers:
            if layer.values[index]:
                size = max(layer.values[index] * scale, _SEEN)
                bottom -= size
                said = html.escape(f"{label}, {layer.label}: {text(layer.values[index])}")
                lines.append(
                    f'<rect class="{layer.css}" x="{left:.1f}" y="{bottom:.1f}" width="{wide:.1f}" '
                    f'height="{size:.1f}"><title>{said}</title></rect>'
                )
        middle = _LEFT + slot * (index + 0.5)
        lines.append(f'<text class="x" x="{middle:.1f}" y="{height - 8}">{html.escape(label)}</text>')
    return _svg(lines, height)


def _totals(layers: Sequence[Layer]) -> list[float]:
    return [sum(values) for values in zip(*(layer.values for layer in layers), strict=True)]


def _grid(most: float, text: Callable[[float], str], height: int, binary: bool) -> tuple[float, list[str]]:
    """The value at the top, and the lines and names of some values."""
    rough = (most or 1.0) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    if binary:
        step = 2.0 ** math.ceil(math.log2(rough))
    count = math.ceil((most or 1.0) / step)
    lines = []
    for index in range(count + 1):
        y = _TOP + (height - _TOP - _BOTTOM) * (1 - index / count)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        name = html.escape(text(index * step))
        lines.append(f'<text class="y" x="{_LEFT - 8}" y="{y + 4:.1f}">{name}</text>')
    return count * step, lines


def _moments(start: datetime, end: datetime) -> Iterator[datetime]:
    """Round moments between, at most ten."""
    span_s = (end - start).total_seconds()
    step_s = next((step for step in _STEPS_S if span_s / step <= 10), _STEPS_S[-1])
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    index = math.ceil((start - midnight).total_seconds() / step_s)
    while (moment := midnight + timedelta(seconds=index * step_s)) < end:
        yield moment
        index += 1


def _clock(moment: datetime, span: timedelta) -> str:
    if span > timedelta(days=2):
        return f"{moment:%d %b}"
    return f"{moment:%H:%M:%S}" if span < timedelta(minutes=20) else f"{moment:%H:%M}"


def _svg(lines: list[str], height: int) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(lines)}</svg>'
