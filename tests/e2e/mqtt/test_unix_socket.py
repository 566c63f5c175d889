"""MQTT over a socket in the file system, with paho and mosquitto_pub."""

from __future__ import annotations

import queue
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.brokers import BrokerFailed, Gateway
from tests.support.limits import LIMIT_S

pytestmark = [
    pytest.mark.penstock_only("this is about penstock's listeners"),
]


def gateway_at(path: Path, folder: Path) -> Gateway:
    return Gateway(folder, settings={"mqtt.unix_listen": str(path)})


def test_clients_come_by_a_socket_and_are_on_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with gateway_at(path, tmp_path / "gateway") as gateway:
        came: queue.Queue[object] = queue.Queue()
        client = mqtt.Client(CallbackAPIVersion.VERSION2, "over-unix", transport="unix")
        client.on_connect = lambda *arguments: came.put(arguments[3].value)
        client.on_subscribe = lambda *_: came.put("subscribed")
        client.on_message = lambda _, __, message: came.put(message.payload)
        client.connect(str(path))
        client.loop_start()
        assert came.get(timeout=LIMIT_S) == 0, "anonymous, as clients on loopback may be"
        client.subscribe("t/#", 1)
        assert came.get(timeout=LIMIT_S) == "subscribed"
        client.publish("t/1", b"paho", 1)
        assert came.get(timeout=LIMIT_S) == b"paho"
        if shutil.which("mosquitto_pub"):
            words = ["mosquitto_pub", "--unix", str(path), "-q", "2", "-t", "t/2", "-m", "mosquitto"]
            subprocess.run(words, check=True, timeout=60)
            assert came.get(timeout=LIMIT_S) == b"mosquitto"
        client.disconnect()
        client.loop_stop()
        client._reset_sockets()
        assert gateway.terminate() == 0
    assert not path.exists()


def test_a_file_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    with gateway_at(path, tmp_path / "gateway") as gateway:
        assert stat.S_ISSOCK(path.stat().st_mode)
        other = gateway_at(path, tmp_path / "other")
        with pytest.raises(BrokerFailed):
            other.start()
        assert f"another process listens on the socket {path}" in other.log_text()
        gateway.kill9()
        assert path.exists()
        gateway.launch()
        gateway.wait_until_serving()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("there", "is there and is no socket"), ("x" * 120, "cannot listen on the socket")],
)
def test_a_path_that_cannot_be_is_named_at_the_start(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "there").write_text("keep me")
    gateway = gateway_at(tmp_path / name, tmp_path / "gateway")
    with pytest.raises(BrokerFailed):
        gateway.start()
    assert complaint in gateway.log_text() and "mqtt.unix_listen" in gateway.log_text()
    assert (tmp_path / "there").read_text() == "keep me"
