"""Bridges of the gateway to a Mosquitto: each message passes once, under the right topic, over a broker that
was away.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli import main
from tests.e2e.mqtt.test_mosquitto_bridge import Client
from tests.support.brokers import Gateway, Mosquitto, free_port
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about bridges of penstock")

VERSIONS = ("mqttv311", "mqttv50")
TOPICS = ["out/# out 2 {0}/ far/", "in/# in 2 {0}/ near/", "both/# both 1", '"" out 0 {0}/one only/one']


def bridge(name: str, port: int, **more: Any) -> dict[str, Any]:
    topics = [topic.format(name) for topic in TOPICS]
    return {"name": name, "address": f"127.0.0.1:{port}", "topics": topics, "restart_timeout": 1, **more}


def settings(*bridges: dict[str, Any]) -> dict[str, str]:
    tables = ("{" + ", ".join(f"{k} = {json.dumps(v)}" for k, v in one.items()) + "}" for one in bridges)
    return {**SETTINGS, "links.bridges": "[" + ", ".join(tables) + "]"}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Mosquitto]]:
    """One Mosquitto for each version of MQTT."""
    brokers = {}
    for version in VERSIONS:
        folder = tmp_path_factory.mktemp(version)
        brokers[version] = Mosquitto(folder, persistence=True).start()
    yield brokers
    for one in brokers.values():
        one.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, others: dict[str, Mosquitto]) -> Iterator[Gateway]:
    bridges = [bridge(version, others[version].mqtt_port, protocol_version=version) for version in VERSIONS]
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings(*bridges)) as running:
        yield running


def state(gateway: Gateway, name: str) -> dict[str, Any]:
    api = Api(gateway)
    found: dict[str, Any] = api.get(f"bridges/%2F/{name}")
    api.close()
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_each_message_passes_once_under_its_name_there(
    gateway: Gateway, others: dict[str, Mosquitto], version: str
) -> None:
    until(lambda: state(gateway, version)["state"] == "running")
    near, far = Client(gateway.mqtt_port), Client(others[version].mqtt_port)
    near.publish(f"{version}/out/a", b"1")
    far.publish("near/in/a", b"2")
    near.publish(f"both/{version}", b"3")
    far.publish(f"both/{version}", b"4")
    near.publish(f"{version}/out/kept", b"5", retain=True)
    near.publish(f"{version}/one", b"6")
    far.wait("far/out/a", b"1")
    near.wait(f"{version}/in/a", b"2")
    far.wait(f"both/{version}", b"3")
    near.wait(f"both/{version}", b"4")
    far.wait("far/out/kept", b"5")
    far.wait("only/one", b"6")
    # A message that came back would have come before the last ones.
    near.publish(f"both/{version}", b"7")
    far.publish(f"both/{version}", b"8")
    for client in (near, far):
        for payload in (b"7", b"8"):
            client.wait(f"both/{version}", payload)
        assert all(count == 1 for (topic, _), count in client.got.items() if "$" not in topic), client.got
    late = Client(others[version].mqtt_port)
    late.wait("far/out/kept", b"5")
    assert "far/out/kept" in late.retained
    for client in (near, far, late):
        client.close()
    shown = state(gateway, version)
    assert shown["protocol_version"] == version and shown["refused"] == 0 and shown["forwarded"] >= 6


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_lost_while_the_other_broker_is_away(
    gateway: Gateway, others: dict[str, Mosquitto], version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = others[version]
    until(lambda: state(gateway, version)["state"] == "running")
    Client(other.mqtt_port, "far/#", "far").close()
    other.terminate()
    until(lambda: state(gateway, version).get("reason"))
    near = Client(gateway.mqtt_port)
    for number in range(50):
        near.publish(f"{version}/out/away", b"%d" % number)
    until(lambda: state(gateway, version).get("reason", "").startswith("remote: no connection to"))
    assert (
        main(["bridges", "list", "--url", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"]) == 0
    )
    assert "no connection to" in capsys.readouterr().out
    other.start()
    far = Client(other.mqtt_port, "far/#", "far")
    for number in range(50):
        far.wait("far/out/away", b"%d" % number)
    assert all(count == 1 for (topic, _), count in far.got.items() if topic == "far/out/away")
    near.close()
    far.close()
    metrics = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=LIMIT_S).text
    assert f'penstock_link_up{{kind="bridge",vhost="/",link="{version}"}} 1' in metrics


def test_the_state_is_told_at_both_ends(gateway: Gateway, others: dict[str, Mosquitto]) -> None:
    name = state(gateway, "mqttv311")["remote_clientid"]
    topic = f"$SYS/broker/connection/{name}/state"
    until(lambda: state(gateway, "mqttv311")["state"] == "running")
    for port in (gateway.mqtt_port, others["mqttv311"].mqtt_port):
        client = Client(port, topic)
        client.wait(topic, b"1")
        client.close()


def test_a_broker_that_takes_few_at_a_time_is_no_fault(gateway: Gateway) -> None:
    """By MQTT 5 a Mosquitto says that it takes 20: the gateway's own session has to be told so."""
    until(lambda: state(gateway, "mqttv50")["state"] == "running")
    lines = [line for line in gateway.log_text().splitlines() if "a link " in line and "mqttv50" in line]
    assert "a link runs" in lines[0], lines


class OldBroker:
    """Stands in for brokers of MQTT 3.1.1 that know no bridges: it refuses each CONNECT of another level."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.levels: list[int] = []
        """Of the CONNECTs that came."""
        self._clients: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._clients.append(client)
                data = b""
                while len(data) < 10:
                    data += client.recv(4096)
                level = data[data.index(b"MQTT") + 4]
                client.sendall(b"\x20\x02\x00" + bytes([level != 4]))
                self.levels.append(level)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for client in self._clients:
            client.close()


def test_a_broker_that_refuses_mqtt_5_is_spoken_to_by_3_1_1(tmp_path: Path) -> None:
    with contextlib.closing(OldBroker()) as old:
        one = {"name": "old", "address": f"127.0.0.1:{old.port}", "topics": ["a out 1"], "restart_timeout": 1}
        with Gateway(tmp_path, settings=settings(one)) as gateway:
            until(lambda: state(gateway, "old")["state"] == "running")
            assert old.levels == [5, 0x84, 4]
            assert state(gateway, "old")["protocol_version"] == "mqttv311"
            assert "it does not speak this version of MQTT" in gateway.log_text()


def test_a_bridge_without_a_broker_does_not_stop_the_gateway(tmp_path: Path) -> None:
    away = bridge("away", free_port(), remote_password="hidden", remote_username="u")
    with Gateway(tmp_path, settings=settings(away)) as gateway:
        until(lambda: state(gateway, "away")["faults"] >= 2)
        assert gateway.terminate() == 0
        assert "hidden" not in gateway.log_text()
