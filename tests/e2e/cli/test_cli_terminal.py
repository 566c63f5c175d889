"""Commands in a terminal: tables with styles that fit its width, and `top`, which goes on until Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.management import SETTINGS, Api
from tests.support.terminal import in_terminal, without_styles

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

LONG = "a-queue-" + "x" * 100
PENSTOCK = [sys.executable, "-m", "penstock"]
LIST = [*PENSTOCK, "queues", "list"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("shown"), settings=SETTINGS) as running:
        api = Api(running)
        for name in (LONG, "[bold]not markup[/bold]"):
            queue = {"durable": True, "arguments": {}}
            assert api.status("PUT", f"queues/%2F/{name.replace('/', '%2F')}", queue) == 201
        api.close()
        yield running


@pytest.fixture
def environment(gateway: Gateway) -> Mapping[str, str]:
    url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    found = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    return {**found, "PYTHONPATH": str(ROOT / "src"), "PENSTOCK_URL": url}


def piped(words: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize("columns", [80, 200])
def test_a_table_fits_the_terminal_and_loses_nothing(environment: Mapping[str, str], columns: int) -> None:
    code, shown = in_terminal(LIST, environment, columns=columns)
    assert code == 0 and "\x1b[" in shown
    lines = without_styles(shown).splitlines()
    assert max(map(len, lines)) <= columns
    # Folded, the beginnings of the lines have the whole name.
    whole = "".join(line.split()[0] for line in lines if line.strip())
    assert LONG in whole and "[bold]not" in whole


@pytest.mark.parametrize("columns", [5, 20, 40])
def test_a_terminal_that_is_too_narrow_for_columns_gets_lines(
    environment: Mapping[str, str], columns: int
) -> None:
    code, shown = in_terminal(LIST, environment, columns=columns)
    assert (code, shown) == (0, piped(LIST, environment))


def test_no_color_and_pipes_get_plain_text(environment: Mapping[str, str]) -> None:
    plain = piped(LIST, environment)
    assert "\x1b" not in plain and LONG in plain.splitlines()[-1] + plain.splitlines()[-2]
    assert in_terminal(LIST, {**environment, "TERM": "dumb"}, columns=400) == (0, plain)
    code, shown = in_terminal(LIST, {**environment, "NO_COLOR": "1"}, columns=80)
    assert code == 0 and "\x1b" not in shown and "UNACKED" in shown
    assert max(map(len, shown.splitlines())) <= 80
    code, shown = in_terminal([*LIST, "-o", "json"], environment, columns=80)
    assert code == 0 and {one["name"] for one in json.loads(shown)} >= {LONG}


def test_errors_are_broken_between_words(environment: Mapping[str, str]) -> None:
    words = [*PENSTOCK, "queues", "delete", "not-there"]
    code, shown = in_terminal(words, environment, columns=60)
    lines = shown.splitlines()
    assert code == 1 and len(lines) > 1 and max(map(len, lines)) <= 60
    assert "`penstock queues list`" in " ".join(line.strip() for line in lines)
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert told.stderr.count("\n") == 1, "a program gets one line"


def test_top_fills_the_terminal_until_it_is_interrupted(environment: Mapping[str, str]) -> None:
    code, shown = in_terminal([*PENSTOCK, "top"], environment, enough=lambda text: "IN/S" in text)
    assert code == 0
    assert "\x1b[?1049h" in shown and "\x1b[?1049l" in shown, "the screen from before comes back"
    told = without_styles(shown)
    assert "2 queues" in told and " MiB, disk " in told and "Traceback" not in told


def test_top_without_styles_goes_on_as_plain_text(environment: Mapping[str, str]) -> None:
    colourless = {**environment, "NO_COLOR": "1"}
    code, shown = in_terminal([*PENSTOCK, "top"], colourless, enough=lambda text: text.count("IN/S") >= 2)
    assert code == 0 and "\x1b" not in shown
    once = piped([*PENSTOCK, "top", "--once"], environment)
    assert "\x1b" not in once and once.count("QUEUE ") == 1


def test_a_bar_shows_how_far_it_is(environment: Mapping[str, str]) -> None:
    words = [*PENSTOCK, "bench", "--messages", "2000"]
    code, shown = in_terminal(words, environment, columns=100)
    assert code == 0 and "published" in shown and "2000 messages" in without_styles(shown)
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert told.stderr == "" and "\x1b" not in told.stdout
