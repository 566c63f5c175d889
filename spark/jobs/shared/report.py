"""The report of `analytics`, as text and as one HTML page with its plots inside."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from penstock.spark.jobs.shared.plots import Layer, areas, columns

__all__ = ["Report", "write_html"]

_COLUMNS_MIN: Final = 8
_PROTOCOLS: Final = {"amqp091": "AMQP 0-9-1", "mqtt": "MQTT"}
_STYLE: Final = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --ink: #1d2430; --soft: #667085;
  --line: #e4e7ec; --amqp091: #e4682a; --mqtt: #2f6fdb; --other: #8a94a6 }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --card: #1d2128; --ink: #e6e9ef;
  --soft: #98a2b3; --line: #2e343e; --amqp091: #f08a55; --mqtt: #6d9df0 } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--page); margin: 0 }
main { max-width: 74rem; margin: 0 auto; padding: 2rem 1.25rem 3rem }
h1 { font-size: 1.75rem; margin: 0; letter-spacing: -.02em }
h1 small { font-size: 1rem; font-weight: 400; color: var(--soft); letter-spacing: 0; overflow-wrap: anywhere }
h2 { font-size: 1rem; margin: 0 0 .75rem; font-weight: 600 }
h2 small { color: var(--soft); font-weight: 400; margin-left: .5rem }
header { display: flex; justify-content: space-between; align-items: flex-end; flex-wrap: wrap; gap: 1rem;
  margin-bottom: 1.5rem }
header p { margin: .25rem 0 0; color: var(--soft) }
.legend { display: flex; gap: 1rem } .legend i { display: inline-block; width: .75rem; height: .75rem;
  border-radius: 3px; margin-right: .4rem; vertical-align: -1px }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.25rem;
  margin-bottom: 1rem; overflow-x: auto }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: 1rem;
  margin-bottom: 1rem }
.facts .card { margin: 0 } .facts span { color: var(--soft); font-size: .85rem }
.facts b { display: block; font-size: 1.55rem; font-weight: 650; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums } .facts em { color: var(--soft); font-style: normal; font-size: .85rem }
table { border-collapse: collapse; width: 100% }
th { color: var(--soft); font-weight: 500; font-size: .85rem }
td, th { padding: .4rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 12rem }
tr:last-child td { border-bottom: 0 }
.n { text-align: right; font-variant-numeric: tabular-nums }
.bar { width: 20%; min-width: 6rem } .bar i { display: block; height: .6rem; border-radius: 3px }
svg { width: 100%; min-width: 36rem; height: auto; display: block }
svg text { font-size: 12px; fill: var(--soft) }
svg .x { text-anchor: middle } svg .y { text-anchor: end } .grid { stroke: var(--line) }
.tip { fill: transparent } .tip:hover { fill: var(--ink); fill-opacity: .08 }
.amqp091 { fill: var(--amqp091); background: var(--amqp091) }
.mqtt { fill: var(--mqtt); background: var(--mqtt) }
.other { fill: var(--other); background: var(--other) }
@page { margin: 12mm }
@media print {
  :root { color-scheme: light; --page: #fff; --card: #fff; --ink: #1d2430; --soft: #667085; --line: #d0d5dd;
    --amqp091: #e4682a; --mqtt: #2f6fdb }
  body { print-color-adjust: exact; -webkit-print-color-adjust: exact; font-size: 12px }
  main { max-width: none; padding: 0 } .card { break-inside: avoid; overflow: visible } svg { min-width: 0 }
  .facts { grid-template-columns: repeat(6, 1fr); gap: .5rem }
  .facts .card { padding: .6rem } .facts b { font-size: 1.1rem }
}
"""


@dataclass
class Report:
    """Figures of the messages that were looked at; all empty when there were none."""

    source: str = ""
    """Where they are, for the title."""
    whole: dict[str, Any] = field(default_factory=dict)
    """messages, bytes, first, last, keys (distinct exchange and routing key, or topic)."""
    window_s: int = 1
    rates: list[dict[str, Any]] = field(default_factory=list)
    """time, protocol, messages, bytes of each window with messages."""
    sizes: list[dict[str, Any]] = field(default_factory=list)
    """protocol, messages, bytes, percentiles (50, 90, 99) and largest payload, persistent and
    unrouted (shares), feeds (on average), qos (shares of 0, 1 and 2; None where there is none)."""
    buckets: list[dict[str, Any]] = field(default_factory=list)
    """protocol, power, count: payloads of at most 2**power bytes and more than half of it."""
    talkers: list[dict[str, Any]] = field(default_factory=list)
    """vhost, protocol, address, routing_key, messages, bytes, first, last; most messages first."""
    heaviest: list[dict[str, Any]] = field(default_factory=list)
    """The same, most bytes first."""

    def span_s(self) -> float:
        """From the first message to the last, at least one window."""
        found: float = (self.whole["last"] - self.whole["first"]).total_seconds()
        return max(found, self.window_s)

    def rate(self) -> float:
        """Messages per second, on average."""
        return float(self.whole["messages"]) / self.span_s()

    def busiest(self) -> tuple[datetime, int]:
        """The window with most messages, and how many."""
        totals: dict[datetime, int] = {}
        for row in self.rates:
            totals[row["time"]] = totals.get(row["time"], 0) + row["messages"]
        return max(totals.items(), key=lambda item: item[1])

    def persistent(self) -> float:
        """Which share of the messages was to be kept."""
        kept = sum(row["persistent"] * row["messages"] for row in self.sizes)
        return float(kept) / float(self.whole["messages"])

    def fan_out(self) -> tuple[float, float]:
        """How many queues and patterns took a message, on average, and which share of them nobody took."""
        totals = [
            sum(row[name] * row["messages"] for row in self.sizes) / self.whole["messages"]
            for name in ("feeds", "unrouted")
        ]
        return float(totals[0]), float(totals[1])

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
        return [
            ("messages", f"{self.whole['messages']:,}"),
            ("payload", _size(self.whole["bytes"])),
            ("on average", f"{self.rate():,.1f} per second"),
            ("topics and keys", f"{self.whole['keys']:,}"),
            ("fan-out", "{:.2f} queues and patterns a message, {:.1%} without any".format(*self.fan_out())),
            ("from", f"{self.whole['first']:%Y-%m-%d %H:%M:%S}"),
            ("to", f"{self.whole['last']:%Y-%m-%d %H:%M:%S} UTC"),
        ]


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:,.{0 if unit == 'B' else 1}f}".removesuffix(".0") + f" {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def _count(value: float) -> str:
    """Exact while it is short."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e5):
            return f"{value / size:,.{1 if value < 100 * size else 0}f}".removesuffix(".0") + f" {unit}"
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _place(row: dict[str, Any]) -> str:
    if row["protocol"] != "amqp091":
        return str(row["address"])
    return f"{row['address'] or '(default exchange)'} {row['routing_key']}"


def write_html(report: Report, path: Path) -> None:
    """Write the page; everything is in it."""
    path.write_text(_page(report), encoding="utf-8")


def _page(report: Report) -> str:
    head = (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Traffic</title>"
        f'<meta name=viewport content="width=device-width"><style>{_STYLE}</style></head><body><main>'
    )
    if not report.whole:
        return f"{head}<h1>Traffic</h1><p>No messages.</main></body></html>"
    sizes = _sizes(report) + _histogram(report)
    return (
        f"{head}{_header(report)}{_cards(report)}"
        f"{_card('Messages per second', _rates(report, 'messages', _count))}"
        f"{_card('Payload per second', _rates(report, 'bytes', _size, binary=True))}"
        f"{_card('Sizes of payloads', sizes, 'columns: messages with a payload of at most so much')}"
        f"{_card('Most messages', _ranking(report.talkers, 'messages', report))}"
        f"{_card('Most payload', _ranking(report.heaviest, 'bytes', report))}"
        "</main></body></html>"
    )


def _header(report: Report) -> str:
    first, last = report.whole["first"], report.whole["last"]
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%d %B %Y, %H:%M:%S}"
    legend = "".join(
        f"<span><i class={_css(name)}></i>{html.escape(_label(name))}</span>" for name in _protocols(report)
    )
    return (
        f"<header><div><h1>Traffic{_of(report)}</h1><p>{first:%d %B %Y, %H:%M:%S} to {end} UTC, "
        f"in windows of {_duration(report.window_s)}</p></div><div class=legend>{legend}</div></header>"
    )


def _cards(report: Report) -> str:
    whole = report.whole
    busiest = report.busiest()
    cards = [
        ("messages", _count(whole["messages"]), f"{whole['keys']:,} topics and keys"),
        ("payload", _size(whole["bytes"]), f"{_size(whole['bytes'] / whole['messages'])} a message"),
        ("on average", f"{report.rate():,.0f}/s", f"over {_duration(report.span_s())}"),
        ("busiest", f"{busiest[1] / report.window_s:,.0f}/s", f"at {_moment(busiest[0], report)}"),
        ("fan-out", f"{report.fan_out()[0]:.2f}", f"{report.fan_out()[1]:.0%} reached nobody"),
        ("persistent", f"{report.persistent():.0%}", "delivery mode 2, QoS 1, 2"),
    ]
    return (
        "<div class=facts>"
        + "".join(
            f"<div class=card><span>{name}</span><b>{value}</b><em>{more}</em></div>"
            for name, value, more in cards
        )
        + "</div>"
    )


def _card(title: str, inside: str, more: str = "") -> str:
    small = f"<small>{more}</small>" if more else ""
    return f"<section class=card><h2>{title}{small}</h2>{inside}</section>"


def _protocols(report: Report) -> list[str]:
    return sorted(row["protocol"] for row in report.sizes)


def _label(protocol: str) -> str:
    return _PROTOCOLS.get(protocol, protocol)


def _css(protocol: str) -> str:
    return protocol if protocol in _PROTOCOLS else "other"


def _rates(report: Report, column: str, text: Callable[[float], str], *, binary: bool = False) -> str:
    """A window without messages is a zero, not a line from its neighbour before to the one behind."""
    first, last = (pick(row["time"] for row in report.rates) for pick in (min, max))
    step = timedelta(seconds=report.window_s)
    times = [first + index * step for index in range(round((last - first) / step) + 1)]
    found = {(row["protocol"], row["time"]): row[column] / report.window_s for row in report.rates}
    layers = [
        Layer(_label(name), _css(name), [found.get((name, time), 0.0) for time in times])
        for name in _protocols(report)
    ]
    return areas(times, layers, text, binary=binary)


def _histogram(report: Report) -> str:
    powers = [row["power"] for row in report.buckets]
    # A few more on both sides of a single one: it is the scale that says that all are alike.
    more = max(0, (_COLUMNS_MIN - (max(powers) - min(powers))) // 2)
    shown = range(max(0, min(powers) - more), max(powers) + more + 1)
    found = {(row["protocol"], row["power"]): row["count"] for row in report.buckets}
    layers = [
        Layer(_label(name), _css(name), [found.get((name, power), 0) for power in shown])
        for name in _protocols(report)
    ]
    return columns([_size(2.0**power) for power in shown], layers, _count, 180)


def _sizes(report: Report) -> str:
    head = [
        "",
        "messages",
        "payload",
        "median",
        "90 % ≤",
        "99 % ≤",
        "largest",
        "fan-out",
        "persistent",
        "QoS",
    ]
    rows = [
        [
            html.escape(_label(row["protocol"])),
            f"{row['messages']:,}",
            _size(row["bytes"]),
            *(_size(value) for value in (*row["percentiles"], row["largest"])),
            f"{row['feeds']:.2f}",
            f"{row['persistent']:.0%}",
            _qos(row),
        ]
        for row in report.sizes
    ]
    return _table(head, rows, {0})


def _qos(row: dict[str, Any]) -> str:
    shares = [(level, share) for level, share in enumerate(row["qos"]) if share]
    return ", ".join(f"{level}: {share:.0%}" for level, share in shares)


def _ranking(rows: Sequence[dict[str, Any]], column: str, report: Report) -> str:
    head = ["topic, or exchange and key", "vhost", "", "share", "messages", "payload", "last seen"]
    most = max((row[column] for row in rows), default=1) or 1
    total = report.whole[column] or 1
    cells = [
        [
            html.escape(_place(row)),
            html.escape(row["vhost"] or ""),
            f'<i class={_css(row["protocol"])} style="width:{row[column] / most:.1%}"></i>',
            f"{row[column] / total:.1%}",
            f"{row['messages']:,}",
            _size(row["bytes"]),
            _moment(row["last"], report),
        ]
        for row in rows
    ]
    return _table(head, cells, {0, 1}, bar=2)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text: set[int], bar: int = -1) -> str:
    """Cells are HTML; columns that are no `text` are numbers, `bar` is a bar."""
    kinds = [
        "bar" if at == bar else "n" if at not in text else "" if at else "name" for at in range(len(head))
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag} class='{kind}'>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(head, 'th')}</tr>{body}</table>"


def _of(report: Report) -> str:
    return f" <small>of {html.escape(report.source)}</small>" if report.source else ""


def _moment(moment: datetime, report: Report) -> str:
    """With its day, where there are several."""
    one_day = report.whole["first"].date() == report.whole["last"].date()
    return f"{moment:%H:%M:%S}" if one_day else f"{moment:%d %b %H:%M:%S}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return "1 second" if seconds == 1 else f"{seconds:,.3g} seconds"
