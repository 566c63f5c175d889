"""`make demo` against a real gateway: all of the data set comes through."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.brokers import ROOT, Broker

pytestmark = pytest.mark.penstock_only("other brokers do not take MQTT 5 to AMQP")


def test_the_demonstration_loses_nothing(broker: Broker) -> None:
    addresses = ["--amqp", f"127.0.0.1:{broker.amqp_port}", "--mqtt", f"127.0.0.1:{broker.mqtt_port}"]
    ran = subprocess.run(
        [sys.executable, "-m", "demo", *addresses],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "nothing is missing, doubled, changed or out of order" in ran.stdout
