"""amqtt's own plugins, and one of a user, authorize the gateway's clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from tests.e2e.mqtt.mqtt_clients import Client, connected
from tests.support.brokers import BrokerFailed, Gateway
from tests.support.management import SETTINGS, Api

OWN_PLUGIN = '''
import asyncio
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin

class Door(BaseAuthPlugin):
    """Lets in who is not banned, and has no opinion about anna."""
    async def authenticate(self, *, session):
        return None if session.username == "anna" else session.username != "banned"

class Slow(BaseTopicPlugin):
    """Takes its time; its clients may use topics below their client id."""
    async def topic_filtering(self, *, session=None, topic=None, action=None):
        await asyncio.sleep(0.05)
        if topic == "boom":
            raise RuntimeError("a bug in a plugin")
        return topic.split("/")[0] == session.client_id
'''


def gateway(folder: Path, config: str, settings: Mapping[str, str] | None = None) -> Gateway:
    (folder / "own_plugins.py").write_text(OWN_PLUGIN)
    (folder / "amqtt.yaml").write_text(config)
    return Gateway(folder, settings={"mqtt.amqtt_config": str(folder / "amqtt.yaml"), **(settings or {})})


@pytest.fixture
def with_files(tmp_path: Path) -> Iterator[Gateway]:
    """amqtt's password file and access list."""
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    (tmp_path / "passwords").write_text(f"anna:{hasher.hash('pencil')}\n")
    config = f"""
plugins:
  amqtt.plugins.authentication.FileAuthPlugin:
    password_file: {tmp_path / "passwords"}
  amqtt.plugins.topic_checking.TopicAccessControlListPlugin:
    publish_acl: {{anna: ["own/#"]}}
    acl: {{anna: ["own/#", "all/+"]}}
"""
    with gateway(tmp_path, config) as made:
        yield made


@pytest.fixture
def with_own(tmp_path: Path) -> Iterator[Gateway]:
    """A user's plugins."""
    with gateway(tmp_path, "plugins: {own_plugins.Door: {}, own_plugins.Slow: {}}") as made:
        yield made


def reason_of(port: int, user: str | None, password: str | None, version: int) -> int:
    """The reason code of CONNACK."""
    answers: list[int] = []
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, "probe", protocol=mqtt.MQTTv5 if version == 5 else mqtt.MQTTv311
    )
    if user is not None:
        client.username_pw_set(user, password)
    client.on_connect = lambda _, __, ___, reason, ____: answers.append(reason.value)
    client.connect("127.0.0.1", port)
    while not answers:
        client.loop(0.1)
    client.disconnect()
    client._reset_sockets()
    return answers[0]


@pytest.mark.parametrize("version", [4, 5])
def test_a_password_file_of_amqtt_lets_clients_in(with_files: Gateway, version: int) -> None:
    port = with_files.mqtt_port
    assert reason_of(port, "anna", "pencil", version) == 0
    assert reason_of(port, "anna", "pen", version) in (0x86, 0x87, 4, 5, 134, 135)
    assert reason_of(port, "guest", "guest", version) != 0
    assert reason_of(port, None, None, version) != 0


@pytest.mark.parametrize("version", [4, 5])
def test_an_access_list_of_amqtt_holds(with_files: Gateway, version: int) -> None:
    port = with_files.mqtt_port
    subscribed = ["-t", "own/#", "-t", "all/x", "-t", "other", "-d", "-W", "30", "-E"]
    protocol = "mqttv5" if version == 5 else "mqttv311"
    words = ["-h", "127.0.0.1", "-p", str(port), "-V", protocol, "-u", "anna", "-P", "pencil"]
    shown = subprocess.run(
        ["mosquitto_sub", *words, *subscribed], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"Subscribed (mid: 1): 0, 0, {0x87 if version == 5 else 0x80}" in shown.stdout
    refused = subprocess.run(
        ["mosquitto_pub", *words, "-q", "1", "-t", "other", "-m", "x", "-d"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("RC:135" in refused.stdout + refused.stderr) == (version == 5)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_slow_plugins_of_a_user_decide_while_others_go_on(with_own: Gateway, version: int, qos: int) -> None:
    port = with_own.mqtt_port
    with connected(port, client_id="a", version=version) as a, connected(port, client_id="b") as b:
        assert a.subscribe("a/#", 2) == 2
        assert a.subscribe("b/#", 2) >= 0x80
        for i in range(20):
            a.paho.publish(f"a/{i % 4}", str(i), qos)
            b.paho.publish(f"a/{i % 4}", "not b's", 0)
        assert [int(p) for p in a.payloads(20)] == list(range(20))
        assert a.quiet()


RIGHTS = {"configure": "", "write": "^amq\\.topic$", "read": ""}


def test_clients_have_the_rights_of_the_user_that_is_named(tmp_path: Path) -> None:
    """One who may publish and not subscribe; it may be made while the gateway runs."""
    config = {"mqtt.amqtt_user": "devices", **SETTINGS}
    with gateway(tmp_path, "plugins: {own_plugins.Door: {}}", config) as made:
        port = made.mqtt_port
        assert reason_of(port, "bert", "x", 5) == 0x87
        assert "there is no user 'devices' (mqtt.amqtt_user)" in made.log_text()
        api = Api(made)
        assert api.status("PUT", "users/devices", {"password": "secret", "tags": ""}) == 201
        assert api.status("PUT", "permissions/%2F/devices", RIGHTS) == 201
        for version in (4, 5):
            assert reason_of(port, "bert", "x", version) == 0
            assert reason_of(port, "banned", "x", version) != 0
        words = ["-h", "127.0.0.1", "-p", str(port), "-V", "mqttv5", "-u", "bert", "-P", "x", "-d"]
        sub = ["mosquitto_sub", *words, "-t", "t", "-W", "30", "-E"]
        shown = subprocess.run(sub, capture_output=True, text=True, timeout=60, check=False)
        assert "Subscribed (mid: 1): 135" in shown.stdout
        pub = ["mosquitto_pub", *words, "-q", "1", "-t", "t", "-m", "x", "-r"]
        sent = subprocess.run(pub, capture_output=True, text=True, timeout=60, check=False)
        assert "received PUBACK (Mid: 1, RC:16)" in sent.stdout  # nobody subscribes
        assert (api.get("whoami")["name"], api.get("connections")) == ("guest", [])
        api.close()


def test_a_plugin_that_fails_denies(with_own: Gateway) -> None:
    with connected(with_own.mqtt_port, client_id="a", version=5) as a:
        assert a.subscribe("boom", 0) == 0x87
        assert a.subscribe("a", 0) == 0
    assert "a topic plugin failed" in with_own.log_text()


def test_a_banned_user_is_refused_and_so_is_one_nobody_has_an_opinion_about(with_own: Gateway) -> None:
    assert reason_of(with_own.mqtt_port, "banned", "x", 5) != 0
    assert reason_of(with_own.mqtt_port, "anna", "x", 5) != 0
    assert reason_of(with_own.mqtt_port, "bert", "x", 5) == 0


def test_a_will_is_asked_about(with_own: Gateway) -> None:
    with connected(with_own.mqtt_port, client_id="a", version=5) as watcher:
        watcher.subscribe("a/gone", 0)
        dies = Client(with_own.mqtt_port, "b", will={"topic": "b/gone", "payload": b"x"})
        dies.drop()
        refused = Client(with_own.mqtt_port, "c", version=5, will={"topic": "a/gone", "payload": b"x"})
        assert refused.reason.value == 0x87
        refused.end()
        assert watcher.quiet()


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("listeners: {}", "no section `plugins`"),
        ("plugins: {own_plugins.Missing: {}}", "own_plugins.Missing"),
        ("plugins: {own_plugins.Door: {colour: red}}", "PluginLoadError"),
        ("plugins: [", "amqtt.yaml"),
    ],
)
def test_a_wrong_file_is_named_at_the_start(tmp_path: Path, config: str, complaint: str) -> None:
    broken = gateway(tmp_path, config)
    with pytest.raises(BrokerFailed):
        broken.start()
    assert "mqtt.amqtt_config" in broken.log_text() and complaint in broken.log_text()
