"""What `analytics` found, as text and as one HTML page with its plots inside."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["Report", "write_html"]

_COLOURS: Final = {"amqp091": "#d9622b", "mqtt": "#2b6fd9", "native": "#3a9d5d"}
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222 }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto }
.facts { display: flex; gap: 2rem; flex-wrap: wrap }
.facts b { display: block; font-size: 1.6rem; font-weight: 600 }
"""


@dataclass
class Report:
    """Figures of the messages that were looked at; all empty when there were none."""

    whole: dict[str, Any] = field(default_factory=dict)
    """messages, bytes, first, last, keys (distinct exchange and routing key, or topic)."""
    window_s: int = 1
    rates: list[dict[str, Any]] = field(default_factory=list)
    """time, protocol, messages, bytes of each window with messages."""
    sizes: list[dict[str, Any]] = field(default_factory=list)
    """protocol, messages, bytes, percentiles (50, 90, 99) and largest payload, persistent (a share)."""
    buckets: list[dict[str, Any]] = field(default_factory=list)
    """power, count: payloads of at most 2**power bytes and more than half of it."""
    talkers: list[dict[str, Any]] = field(default_factory=list)
    """vhost, protocol, address, routing_key, messages, bytes, first, last; most messages first."""

    def text(self) -> str:
        """For a terminal."""
        if not self.whole:
            return "no messages"
        lines = [f"{name}: {value}" for name, value in self._facts()]
        for row in self.sizes:
            half, most, nearly = row["percentiles"]
            lines.append(
                f"{row['protocol']:8} {row['messages']:10} messages, payload p50 {half} p90 {most} "
                f"p99 {nearly} max {row['largest']} bytes"
            )
        lines += [f"{row['messages']:10} {_place(row)}" for row in self.talkers]
        return "\n".join(lines)

    def _facts(self) -> list[tuple[str, str]]:
        span_s = (self.whole["last"] - self.whole["first"]).total_seconds()
        rate = f"{self.whole['messages'] / span_s:,.1f} per second" if span_s else "at once"
        return [
            ("messages", f"{self.whole['messages']:,}"),
            ("payload", _size(self.whole["bytes"])),
            ("on average", rate),
            ("topics and keys", f"{self.whole['keys']:,}"),
            ("from", f"{self.whole['first']:%Y-%m-%d %H:%M:%S}"),
            ("to", f"{self.whole['last']:%Y-%m-%d %H:%M:%S} UTC"),
        ]


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:,.0f} {unit}" if unit == "B" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def _place(row: dict[str, Any]) -> str:
    if row["protocol"] != "amqp091":
        return str(row["address"])
    return f"{row['address'] or '(default exchange)'} {row['routing_key']}"


def write_html(report: Report, path: Path) -> None:
    """Write the page; everything is in it."""
    path.write_text(_page(report), encoding="utf-8")


def _page(report: Report) -> str:
    if not report.whole:
        return (
            f"<!doctype html><meta charset=utf-8><title>Traffic</title><style>{_STYLE}</style><p>No messages."
        )
    facts = "".join(f"<div>{name}<b>{html.escape(value)}</b></div>" for name, value in report._facts())
    sizes = _table(
        ["protocol", "messages", "payload", "p50", "p90", "p99", "largest", "persistent"],
        [
            [
                row["protocol"],
                f"{row['messages']:,}",
                _size(row["bytes"]),
                *(_size(value) for value in (*row["percentiles"], row["largest"])),
                f"{row['persistent']:.0%}",
            ]
            for row in report.sizes
        ],
    )
    talkers = _table(
        ["exchange and key, or topic", "vhost", "protocol", "messages", "payload", "last seen"],
        [
            [
                _place(row),
                row["vhost"] or "",
                row["protocol"],
                f"{row['messages']:,}",
                _size(row["bytes"]),
                f"{row['last']:%Y-%m-%d %H:%M:%S}",
            ]
            for row in report.talkers
        ],
        text=3,
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Traffic</title><style>{_STYLE}</style>"
        f"<h1>Traffic</h1><div class=facts>{facts}</div>"
        f"<h2>Messages per second</h2>{_rates(report, 'messages', 1.0)}"
        f"<h2>KiB per second</h2>{_rates(report, 'bytes', 1024.0)}"
        f"<h2>Sizes</h2>{sizes}{_histogram(report)}<h2>Top talkers</h2>{_bars(report)}{talkers}</html>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{'' if at < text else ' class=n'}>{html.escape(str(cell))}</{tag}>"
            for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(head, 'th')}</tr>{body}</table>"


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg")
    return out.getvalue()[out.getvalue().index("<svg") :]


def _rates(report: Report, column: str, unit: float) -> str:
    from datetime import timedelta

    figure, axes = _figure(3)
    step = timedelta(seconds=report.window_s)
    for protocol in sorted({row["protocol"] for row in report.rates}):
        found = {
            row["time"]: row[column] / report.window_s / unit
            for row in report.rates
            if row["protocol"] == protocol
        }
        # A window without messages is a zero, not a line from its neighbour before to the one behind.
        times, at = [], min(found)
        while at <= max(found):
            times.append(at)
            at += step
        colour = _COLOURS.get(protocol, "#777")
        values = [found.get(time, 0.0) for time in times]
        axes.fill_between(times, values, step="post", alpha=0.25, color=colour)
        axes.step(times, values, where="post", color=colour, label=protocol)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return _svg(figure)


def _histogram(report: Report) -> str:
    figure, axes = _figure(2.5)
    powers = [row["power"] for row in report.buckets]
    axes.bar(
        [str(_size(2.0**power)) for power in powers], [row["count"] for row in report.buckets], color="#888"
    )
    axes.set_xlabel("payload of at most")
    axes.set_ylabel("messages")
    return _svg(figure)


def _bars(report: Report) -> str:
    figure, axes = _figure(max(1.5, 0.3 * len(report.talkers)))
    rows = report.talkers[::-1]
    colours = [_COLOURS.get(row["protocol"], "#777") for row in rows]
    axes.barh(range(len(rows)), [row["messages"] for row in rows], color=colours)
    axes.set_yticks(range(len(rows)), [_place(row)[:50] for row in rows])
    axes.set_xlabel("messages")
    return _svg(figure)
