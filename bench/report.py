"""The figures of a comparison as JSON and as a markdown table."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import Result
from bench.workloads import Workload

COLUMNS = (
    "workload",
    "broker",
    "published/s",
    "delivered/s",
    "CPU us/delivered",
    "cores",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "penstock : peer",
    "goal",
    "lost",
)


def machine() -> dict[str, str]:
    """The machine and the versions that the figures depend on, apart from the brokers."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "tcp": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "python": platform.python_version(),
        "load_average_at_start": f"{os.getloadavg()[0]:.2f}",
    }


def middle(results: Sequence[Result]) -> Result:
    """The median of each figure over the repeats; losses are added up."""

    def mid(name: str) -> Any:
        values = [getattr(r, name) for r in results]
        return None if values[0] is None else median(values)

    latency = {k: median([r.latency_us[k] for r in results]) for k in results[0].latency_us}
    figures = {
        f.name: mid(f.name)
        for f in dataclasses.fields(Result)
        if f.name not in ("latency_us", "beside_s", "lost")
    }
    return Result(**figures, lost=sum(r.lost for r in results), latency_us=latency)


def ratios(workload: Workload, results: Mapping[str, Result]) -> dict[str, float]:
    """penstock : peer, as factors by which penstock is better: "cpu", or "p50" and "p99" in latency
    workloads.
    """
    ours, peers = results.get("penstock"), results.get(workload.peer)
    if ours is None or peers is None:
        return {}
    if workload.goal is None:
        return {k: peers.latency_us[k] / ours.latency_us[k] for k in ("p50", "p99")}
    if not ours.cpu_us_per_delivered or not peers.cpu_us_per_delivered:
        return {}
    return {"cpu": peers.cpu_us_per_delivered / ours.cpu_us_per_delivered}


def reached(workload: Workload, results: Mapping[str, Result]) -> bool | None:
    """Whether penstock reached the workload's goal; None when either broker did not run."""
    factors = ratios(workload, results)
    if not factors:
        return None
    return min(factors.values()) >= (workload.goal or 1.0)


def rows(workload: Workload, results: Mapping[str, Result]) -> list[list[str]]:
    """The table rows of one workload, one per broker that ran it."""
    table = []
    for name, r in results.items():
        factors = ratios(workload, results) if name == "penstock" else {}
        goal = ""
        if name == "penstock":
            wanted = f">= {workload.goal:g}x CPU" if workload.goal is not None else "p50, p99 <= peer's"
            verdict = {True: "reached", False: "missed", None: "not compared"}[reached(workload, results)]
            goal = f"{wanted}: {verdict}"
        table.append(
            [
                workload.name,
                name,
                f"{r.published_per_s:,.0f}",
                f"{r.delivered_per_s:,.0f}",
                "" if r.cpu_us_per_delivered is None else f"{r.cpu_us_per_delivered:.2f}",
                "" if r.cpu_cores is None else f"{r.cpu_cores:.2f}",
                *(f"{r.latency_us[k]:,.0f}" if r.latency_us else "" for k in ("p50", "p99", "p999")),
                ", ".join(f"{k} {v:.2f}x" if v < 10 else f"{k} {v:.1f}x" for k, v in factors.items()),
                goal,
                _losses(r),
            ]
        )
    return table


def _losses(r: Result) -> str:
    parts = []
    if r.lost:
        parts.append(f"{r.lost:,} of {r.sent_total:,.0f} sent")
    if r.backlog:
        parts.append(f"({r.backlog:,.0f} still queued)")
    return " ".join(parts) or "0"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A markdown table, its columns padded so that it reads as plain text too."""
    whole = [list(COLUMNS), *map(list, table)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in whole
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)
