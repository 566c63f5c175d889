"""Joins the answers of several workers: numbers are added, pages of metrics get a label for each worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["added", "labelled"]


def added(whole: Any, parts: Sequence[Any]) -> Any:
    """Numbers of equal places added; lists joined; everything else as in `whole`."""
    for part in parts:
        if isinstance(whole, dict) and isinstance(part, dict):
            whole = {key: added(value, [part[key]]) if key in part else value for key, value in whole.items()}
        elif isinstance(whole, list) and isinstance(part, list):
            whole = whole + [item for item in part if item not in whole]
        elif _is_number(whole) and _is_number(part):
            whole += part
    return whole


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
