"""deploy/prometheus and deploy/grafana: each query finds its series on the pages of a gateway that runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers import ROOT, Gateway
from tests.support.data_plane import SERVED, make_queue, open_client
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("these are penstock's own rules")

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "penstock-rules.yml"
GOLDEN = ROOT / "tests" / "golden" / "prometheus-rules-test.yml"

_NAME = re.compile(r"\b(?:rabbitmq|penstock)_[a-z_]+")
_SELECTOR = re.compile(r"([a-z_]*)\{([^{}]*)\}")
_MATCHER = re.compile(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"')
_OF_PROMETHEUS = ("instance", "job")
"""Labels that the scrape adds."""


def alerts() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def panels() -> dict[str, str]:
    board = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }


QUERIES = {**alerts(), **panels()}


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, str]]]:
    """The labels of all series of the pages that prometheus.yml scrapes, each with its name."""
    settings = {**SERVED, "metrics.listen": "127.0.0.1:0"}
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as gateway:
        make_queue(gateway, "q")
        with open_client(gateway) as client:
            client.put("streams/s", json={}).raise_for_status()
            client.put("streams/s/subscriptions/n", json={}).raise_for_status()
        base = f"http://127.0.0.1:{gateway.ports['metrics']}"
        found = [{"__name__": "up", "job": "penstock"}]
        for job in jobs:
            page = httpx.get(
                base + job.get("metrics_path", "/metrics"), params=job.get("params", {}), timeout=LIMIT_S
            )
            assert page.status_code == 200
            for family in text_string_to_metric_families(page.text):
                found += [{"__name__": sample.name, **sample.labels} for sample in family.samples]
        yield found


@pytest.mark.parametrize("name", QUERIES)
def test_each_selector_of_a_query_finds_series(name: str, series: list[dict[str, str]]) -> None:
    expression = QUERIES[name]
    selectors = [(match[1], match[2]) for match in _SELECTOR.finditer(expression)]
    bare = _NAME.findall(re.sub(r'"[^"]*"', "", _SELECTOR.sub("", expression)))
    selectors += [(metric, "") for metric in bare]
    assert selectors
    for metric, inner in selectors:
        wanted = _MATCHER.findall(inner) + ([("__name__", "=", metric)] if metric else [])
        assert any(all(matches(labels, *matcher) for matcher in wanted) for labels in series), (
            f"nothing is {metric}{{{inner}}}"
        )


def matches(labels: dict[str, str], label: str, operator: str, value: str) -> bool:
    if label in _OF_PROMETHEUS and label not in labels:
        return True
    found = labels.get(label, "")
    return re.fullmatch(value, found) is not None if operator == "=~" else found == value


def test_each_alternative_of_a_matcher_finds_series(series: list[dict[str, str]]) -> None:
    for expression in QUERIES.values():
        for label, operator, value in _MATCHER.findall(expression):
            if operator == "=~" and label not in _OF_PROMETHEUS and label != "__name__":
                for one in value.split("|"):
                    assert any(labels.get(label) == one for labels in series), f"{label} is never {one}"


def test_each_alert_says_what_to_do() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "action"}


@pytest.fixture
def promtool() -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return program


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_configuration_and_each_alert_fires(promtool: str, tmp_path: Path) -> None:
    run(promtool, "check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    for file in (RULES, GOLDEN):
        shutil.copy(file, tmp_path)
    run(promtool, "test", "rules", str(tmp_path / GOLDEN.name))
    fired = set(re.findall(r'alertname="(\w+)"', GOLDEN.read_text()))
    assert fired == set(alerts())


def test_promtool_takes_each_query_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:{at}",
            "expr": expression.replace("$__rate_interval", "5m"),
        }
        for at, expression in enumerate(panels().values())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run(promtool, "check", "rules", str(file))
