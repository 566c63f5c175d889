"""Joins the answers of several workers: numbers are added, pages of metrics get a label for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["added", "labelled"]


def added(whole: Any, parts: Sequence[Any]) -> Any:
    """Numbers of equal places added, samples of equal times, too; lists joined; the rest as in `whole`."""
    for part in parts:
        if isinstance(whole, dict) and isinstance(part, dict):
            whole = {key: added(value, [part[key]]) if key in part else value for key, value in whole.items()}
        elif isinstance(whole, list) and isinstance(part, list):
            if _are_samples(whole) and _are_samples(part):
                whole = _summed(whole, part)
            else:
                whole = whole + [item for item in part if item not in whole]
        elif _is_number(whole) and _is_number(part):
            whole += part
    return whole


def _are_samples(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict) and value[0].keys() == {"sample", "timestamp"}


def _summed(whole: list[Any], part: list[Any]) -> list[Any]:
    """Samples by time, newest first; a worker that began later has none of the first ones."""
    sums: dict[int, Any] = {}
    for one in (*whole, *part):
        sums[one["timestamp"]] = sums.get(one["timestamp"], 0) + one["sample"]
    return [{"sample": sums[moment], "timestamp": moment} for moment in sorted(sums, reverse=True)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def labelled(pages: Sequence[bytes]) -> bytes:
    """Pages of metrics as one: each value has the label `worker`, its page's number."""
    heads: dict[str, list[str]] = {}
    values: dict[str, list[str]] = {}
    for number, page in enumerate(pages):
        name = ""
        for line in page.decode().splitlines():
            if line.startswith("# TYPE "):
                name = line.split(" ", 3)[2]
            if line.startswith("#"):
                known = heads.setdefault(name, [])
                if line not in known:
                    known.append(line)
            elif line:
                values.setdefault(name, []).append(_with_label(line, number))
    lines = []
    for name, head in heads.items():
        lines += head + values.get(name, [])
    return ("\n".join(lines) + "\n").encode()


def _with_label(line: str, worker: int) -> str:
    end = line.find("{")
    space = line.find(" ")
    if end < 0 or space < end:
        return f'{line[:space]}{{worker="{worker}"}}{line[space:]}'
    return f'{line[: end + 1]}worker="{worker}",{line[end + 1 :]}'
