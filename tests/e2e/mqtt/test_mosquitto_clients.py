"""Mosquitto's command-line clients: mosquitto_pub, mosquitto_sub and mosquitto_rr."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.brokers import BrokerMissing, Mosquitto
from tests.support.limits import LIMIT_S
from tests.support.mosquitto_clients import command, publish, received, subscriber

pytestmark = [
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="apt-get install mosquitto-clients"),
]

versions = pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])


@versions
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_publish_and_subscribe(mqtt_port: int, unique: str, version: str, qos: str) -> None:
    with subscriber(mqtt_port, version, "-q", qos, "-t", f"{unique}/#", "-F", "%t %p %q") as sub:
        publish(mqtt_port, version, "-q", qos, "-t", f"{unique}/a", "-m", "hello")
        assert received(sub, 1) == [f"{unique}/a hello {qos}"]


@versions
def test_lines_from_standard_input(mqtt_port: int, unique: str, version: str) -> None:
    with subscriber(mqtt_port, version, "-q", "1", "-t", unique) as sub:
        publish(
            mqtt_port, version, "-q", "1", "-t", unique, "-l", stdin="".join(f"{i}\n" for i in range(100))
        )
        assert received(sub, 100) == [str(i) for i in range(100)]


@versions
def test_retained(mqtt_port: int, unique: str, version: str) -> None:
    publish(mqtt_port, version, "-q", "1", "-r", "-t", unique, "-m", "kept")
    with subscriber(mqtt_port, version, "-t", unique, "-F", "%p %r") as sub:
        assert received(sub, 1) == ["kept 1"]
    publish(mqtt_port, version, "-q", "1", "-r", "-n", "-t", unique)


@versions
def test_a_will(mqtt_port: int, unique: str, version: str) -> None:
    """Of a client that is killed."""
    with subscriber(mqtt_port, version, "-q", "1", "-t", f"{unique}/will") as watcher:
        will = ["--will-topic", f"{unique}/will", "--will-payload", "lost", "--will-qos", "1"]
        with subscriber(mqtt_port, version, "-t", f"{unique}/other", *will):
            pass  # it is killed here
        assert received(watcher, 1) == ["lost"]


@versions
def test_a_session_is_resumed(mqtt_port: int, unique: str, version: str) -> None:
    lasting = ["-i", unique, "-c", "-q", "1", "-t", unique]
    if version == "mqttv5":
        lasting += ["-x", "600"]
    with subscriber(mqtt_port, version, *lasting):
        pass
    for text in ("1", "2", "3"):
        publish(mqtt_port, version, "-q", "1", "-t", unique, "-m", text)
    # Waiting messages come before SUBACK.
    with subscriber(mqtt_port, version, *lasting, ready="received CONNACK") as sub:
        assert received(sub, 3) == ["1", "2", "3"]
    publish(mqtt_port, version, "-i", unique, "-t", f"{unique}/gone", "-m", "x")  # a clean session ends it


def test_properties(mqtt_port: int, unique: str) -> None:
    with subscriber(mqtt_port, "mqttv5", "-t", unique, "-F", "%p %C %R %D %P") as sub:
        words = ["content-type", "a/b"], ["response-topic", "r"], ["correlation-data", "c"]
        words += ["user-property", "k", "v"], ["user-property", "k", "w"]
        properties = [word for found in words for word in ("-D", "publish", *found)]
        publish(mqtt_port, "mqttv5", "-q", "1", "-t", unique, "-m", "x", *properties)
        assert received(sub, 1) == ["x a/b r c k:v k:w"]


def test_request_and_response(mqtt_port: int, unique: str) -> None:
    """mosquitto_rr asks with a response topic; the answer is sent with mosquitto_pub."""
    with subscriber(mqtt_port, "mqttv5", "-t", f"{unique}/ask", "-F", "%R %p") as server:
        caller = subprocess.Popen(
            command(
                "rr",
                mqtt_port,
                "mqttv5",
                "-W",
                "30",
                "-t",
                f"{unique}/ask",
                "-e",
                f"{unique}/answer",
                "-m",
                "2+2",
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert received(server, 1) == [f"{unique}/answer 2+2"]
        publish(mqtt_port, "mqttv5", "-q", "1", "-t", f"{unique}/answer", "-m", "4")
        assert caller.communicate(timeout=LIMIT_S)[0] == "4\n"


@versions
def test_the_figures_under_sys(mqtt_port: int, version: str) -> None:
    with subscriber(mqtt_port, version, "-t", "$SYS/#", "-v") as sub:
        lines = received(sub, 40)
    figures = dict(line.split(" ", 1) for line in lines if "retained messages" not in line)
    assert figures["$SYS/broker/version"].startswith("penstock ")
    assert figures["$SYS/broker/uptime"].endswith(" seconds")
    assert figures["$SYS/broker/clients/connected"].isdecimal()


@pytest.mark.penstock_only("its names are held against Mosquitto's")
def test_the_names_under_sys_are_those_of_mosquitto(mqtt_port: int, tmp_path: Path) -> None:
    """The gateway has the topics that Mosquitto's dashboards and exporters read."""
    uptime = "$SYS/broker/uptime"
    try:
        mosquitto = Mosquitto(tmp_path, options=("sys_interval 1",))
    except BrokerMissing as missing:
        pytest.skip(str(missing))
    with mosquitto, subscriber(mosquitto.mqtt_port, "mqttv311", "-t", "$SYS/#", "-F", "%t") as sub:
        expected: list[str] = []
        while expected.count(uptime) < 3:  # all that is retained, and what changed since
            expected += received(sub, 1)
    with subscriber(mqtt_port, "mqttv311", "-t", "$SYS/#", "-F", "%t") as sub:
        missing_names = set(expected)
        while missing_names:
            missing_names -= set(received(sub, 1))
    assert len(set(expected)) > 40


@pytest.mark.penstock_only("RabbitMQ has no such topics")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_an_exclusive_filter_is_one_subscribers(mqtt_port: int, unique: str, version: str) -> None:
    topic = f"$exclusive/{unique}"
    with subscriber(mqtt_port, version, "-t", topic) as first:
        second = command("sub", mqtt_port, version, "-t", topic, "-W", "30")
        refused = subprocess.run(second, capture_output=True, text=True, timeout=60)
        assert "denied" in refused.stderr
        publish(mqtt_port, version, "-t", unique, "-m", "mine", "-q", "1")
        assert received(first, 1) == ["mine"]


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
def test_the_vhost_stands_before_the_user_name(mqtt_port: int, unique: str, version: str) -> None:
    login = ("-u", "/:guest", "-P", "guest")
    with subscriber(mqtt_port, version, "-t", unique, *login) as sub:
        publish(mqtt_port, version, "-t", unique, "-m", "x", "-q", "1", *login)
        assert received(sub, 1) == ["x"]
    none = command("pub", mqtt_port, version, "-t", unique, "-m", "x", "-u", "none:guest", "-P", "guest")
    refused = subprocess.run(none, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0
    assert "not authori" in refused.stderr.lower()
