"""The page of a report: what is large or long stays readable."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.jobs.analytics import _called
from penstock.spark.jobs.shared.report import Report, _count, write_html

FIRST = datetime(2026, 5, 1, 23, 59)
KEY = "eu.order." + "x" * 240


def report(last: datetime, messages: int = 12_345_678) -> Report:
    """One key of MQTT with QoS 0 and 1, payloads of one size."""
    talker: dict[str, Any] = {
        "vhost": "/",
        "protocol": "mqtt",
        "address": KEY,
        "routing_key": KEY,
        "messages": messages,
        "bytes": messages * 60,
        "first": FIRST,
        "last": last,
    }
    return Report(
        source="/data/<log>",
        whole={"messages": messages, "bytes": messages * 60, "first": FIRST, "last": last, "keys": 1},
        rates=[{"time": FIRST, "protocol": "mqtt", "messages": messages, "bytes": messages * 60}],
        sizes=[
            {
                "protocol": "mqtt",
                "messages": messages,
                "bytes": messages * 60,
                "percentiles": [60, 60, 60],
                "largest": 60,
                "persistent": 0.25,
                "unrouted": 0.0,
                "feeds": 1.0,
                "qos": [0.75, 0.25, 0.0],
            }
        ],
        buckets=[{"protocol": "mqtt", "power": 6, "count": messages}],
        talkers=[talker],
        heaviest=[talker],
    )


def page(tmp_path: Path, found: Report) -> str:
    write_html(found, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_a_page_says_what_it_is_of_and_how_it_was_sent(tmp_path: Path) -> None:
    text = page(tmp_path, report(FIRST + timedelta(seconds=30)))
    assert "of /data/&lt;log&gt;</small>" in text
    assert "0: 75%, 1: 25%<" in text
    assert f"<td class='name'>{KEY}</td>" in text, "a cell that may be broken anywhere"
    assert "<b>12.3 M</b>" in text


def test_a_single_size_is_one_column_of_several(tmp_path: Path) -> None:
    text = page(tmp_path, report(FIRST + timedelta(seconds=30)))
    plot = text[text.index("Sizes of payloads") :].split("</svg>")[0]
    labels = re.findall(r'<text class="x"[^>]*>([^<]+)</text>', plot)
    assert labels == ["4 B", "8 B", "16 B", "32 B", "64 B", "128 B", "256 B", "512 B", "1 KiB"]
    (width,) = re.findall(r'<rect class="mqtt"[^>]* width="([\d.]+)"', plot)
    assert float(width) <= 80


@pytest.mark.parametrize(("last", "shown"), [(30, "23:59:30"), (90, "02 May 00:00:30")])
def test_moments_have_their_day_where_there_are_several(tmp_path: Path, last: int, shown: str) -> None:
    text = page(tmp_path, report(FIRST + timedelta(seconds=last)))
    assert f"<td class='n'>{shown}</td>" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (999.6, "999.6"),
        (4651, "4,651"),
        (99_999, "99,999"),
        (100_000, "100 k"),
        (123_456, "123 k"),
        (1_500_000, "1.5 M"),
        (30_000_000, "30 M"),
        (7.2e9, "7.2 G"),
    ],
)
def test_numbers_are_exact_while_they_are_short(value: float, shown: str) -> None:
    assert _count(value) == shown


def test_a_log_is_called_by_its_place_without_a_password() -> None:
    assert _called(Path("/data")) == "/data"
    assert _called("penstock://u:secret@gw:1") == "the log of gw:1"
