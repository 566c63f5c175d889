"""The gateway as a process: free ports, the ready line, a clean stop, and two on one data folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.brokers import BrokerFailed, Gateway, can_connect


def test_port_0_takes_a_free_port_and_says_which(tmp_path: Path) -> None:
    with Gateway(tmp_path, ports=(0, 0)) as gateway:
        assert can_connect(gateway.amqp_port)
        assert can_connect(gateway.mqtt_port)


def test_a_listener_can_be_switched_off(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, settings={"mqtt.listen": ""})
    gateway.launch()
    try:
        while "ready " not in gateway.log_text():
            assert gateway.running, gateway.log_text()
        assert can_connect(gateway.amqp_port)
        assert not can_connect(gateway.mqtt_port)
    finally:
        assert gateway.terminate() == 0


def test_a_second_gateway_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with Gateway(tmp_path) as first:
        second = Gateway(tmp_path)
        second.log_path = tmp_path / "second.log"
        with pytest.raises(BrokerFailed, match=r"(?s)ended with [^0].*lock"):
            second.start()
        assert can_connect(first.amqp_port)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with Gateway(tmp_path / "a") as first:
        second = Gateway(tmp_path / "b", ports=(first.amqp_port, 0))
        with pytest.raises(BrokerFailed, match=rf"(?s)ended with [^0].*{first.amqp_port}"):
            second.start()


def test_a_stop_is_clean_while_clients_are_connected(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        words = ["mosquitto_sub", "-p", str(gateway.mqtt_port), "-t", "#", "-W", "30"]
        client = subprocess.Popen(words)
        try:
            assert gateway.terminate() == 0
        finally:
            client.kill()
            client.wait()
        gateway.restart()
