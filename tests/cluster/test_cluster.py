"""A smoke of `tests.cluster.faults`: one broker, two nodes, one fault of each kind that a node can have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.faults import run
from tests.support.brokers import ROOT, BrokerMissing, free_port
from tests.support.cluster import make_brokers, make_nodes

JARS = ROOT / "build" / "kafka"


@pytest.mark.timeout(300)
def test_a_cluster_loses_nothing_when_its_owner_fails(tmp_path: Path) -> None:
    faults = ["kill_process", "hand_over", "freeze", "kill_machine"]
    try:
        report = run(tmp_path, JARS, brokers=1, nodes=2, faults=faults, seed=1)
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    assert report.confirmed > 1000
    assert report.lost == [] and report.in_order
    assert set(report.pauses) == set(faults)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kafka.bootstrap_servers": ""}, "kafka.bootstrap_servers"),
        ({"server.workers": "2"}, "server.workers"),
        ({"log.folders": "/tmp"}, "log.folders"),
        ({"kafka.options": "acks=1"}, "kafka.options"),
        ({"kafka.password_file": "/nowhere"}, "kafka.password_file"),
        ({"amqp.listen": "127.0.0.1:0"}, "amqp.listen"),
    ],
)
def test_a_mistake_in_the_settings_names_the_key(
    settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    basic = {"log.engine": "kafka", "kafka.bootstrap_servers": f"127.0.0.1:{free_port()}"}
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(tmp_path)]
    for key, value in (basic | settings).items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_broker_that_does_not_answer_refuses_the_start(tmp_path: Path) -> None:
    brokers = make_brokers(tmp_path, tmp_path, 1)  # not started
    node = make_nodes(tmp_path, brokers, "a")[0]
    done = subprocess.run(
        node.command(), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "Kafka does not answer" in done.stderr and "kafka.bootstrap_servers" in done.stderr
