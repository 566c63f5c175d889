"""`penstock migrate mosquitto`: a real Mosquitto's files become a gateway with its users and sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from penstock.cli import main
from tests.support.brokers import ROOT, BrokerMissing, Gateway, Mosquitto
from tests.support.data_plane import until
from tests.support.documented import documented, placed
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api
from tests.support.mqtt_devices import Device

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

ALICE, BOB = ("alice", "s3cret"), ("bob", "other")
RULES = """user alice
topic readwrite plant/#
user bob
topic read plant/#
pattern readwrite home/%u/#
"""


class Configured(Gateway):
    """A gateway with a configuration file."""

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(folder, settings=SETTINGS)
        self._config = config

    def command(self) -> list[str]:
        return [*super().command(), "--config", str(self._config)]


def mosquitto(folder: Path, *options: str) -> Mosquitto:
    try:
        return Mosquitto(folder, persistence=True, options=options)
    except BrokerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mosquitto.conf of a Mosquitto that has users, rules, sessions and messages, and has stopped."""
    folder = tmp_path_factory.mktemp("mosquitto")
    passwords, rules = folder / "passwords", folder / "rules"
    passwords.touch()
    rules.write_text(RULES)
    subprocess.run(["mosquitto_passwd", "-b", passwords, *ALICE], check=True)
    subprocess.run(["mosquitto_passwd", "-H", "sha512", "-b", passwords, *BOB], check=True)
    files = (
        f"password_file {passwords}",
        f"acl_file {rules}",
        "allow_anonymous false",
        "queue_qos0_messages true",
    )
    with mosquitto(folder, *files) as running:
        port = running.mqtt_port
        with Device(port, "early", BOB, version=paho.MQTTv311) as early:
            early.subscribe("plant/#", 1)
        with Device(port, "sender", ALICE) as alice:
            alice.publish("plant/a", "kept", 1, retain=True, unit="K")
            alice.publish("plant/b", "twice", 2)
            with Device(port, "late", BOB) as late:
                late.subscribe("plant/#", 2)
                late.take(1)  # the retained one
            for number in range(5):
                alice.publish("plant/c", str(number), 1 + number % 2)
            alice.publish("plant/z", "fleeting", 0)
            alice.publish("plant/z", "last", 1)  # the one before has come, too
    return folder / "mosquitto.conf"


@pytest.fixture(scope="module")
def moved(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway after the move."""
    folder = tmp_path_factory.mktemp("target")
    config = folder / "penstock.toml"
    assert main(["migrate", "mosquitto", str(source), "--write", str(config)]) == 0
    with Configured(folder, config) as gateway:
        apply = ["migrate", "mosquitto", str(source), "--apply", *target(gateway, folder)]
        assert main([*apply, "--write", str(config)]) == 0
        yield gateway


def target(gateway: Gateway, folder: Path) -> list[str]:
    url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    return ["--url", url, "--mqtt", f"127.0.0.1:{gateway.mqtt_port}", "--state", str(folder / "state.json")]


def test_the_lines_of_the_pages_are_commands(source: Path, tmp_path: Path) -> None:
    stand_ins = {"mosquitto.conf": str(source), "penstock.toml": str(tmp_path / "penstock.toml")}
    for words in documented(r"migrate mosquitto mosquitto.*"):
        assert main(placed(words, stand_ins)) == 0


def test_the_dry_run_says_the_fate_of_each_line(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "mosquitto", str(source), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    fates = {entry["line"]: entry["fate"] for entry in said["entries"]}
    assert fates["allow_anonymous true"] == "left out"  # a later line sets it again
    assert fates["allow_anonymous false"] == "moved"
    assert fates["alice:********"] == fates["topic read plant/#"] == "moved"
    assert fates["user root"] == "left out"
    assert fates["1 retained messages"] == fates["3 sessions with 2 subscriptions"] == "moved"
    assert "unknown" not in fates.values() and "wrong" not in fates.values()
    assert said["options"]["mqtt.allow_anonymous"] is False
    assert ALICE[1] not in json.dumps(said)


def test_a_session_goes_on_with_what_waited_for_it(moved: Gateway) -> None:
    later = [("plant/c", str(number)) for number in range(5)]
    later += [("plant/z", "fleeting"), ("plant/z", "last")]
    with Device(moved.mqtt_port, "early", BOB, version=paho.MQTTv311) as early:
        assert early.present
        assert early.take(9) == [("plant/a", "kept"), ("plant/b", "twice"), *later]
    with Device(moved.mqtt_port, "late", BOB) as late:
        assert late.present
        # A client gives on a message of QoS 2 when it is released: after a later one of QoS 1.
        assert sorted(late.take(7)) == later
        with Device(moved.mqtt_port, "sender", ALICE) as alice:
            alice.publish("plant/d", "now", 1)
        assert late.take(1) == [("plant/d", "now")]


def test_a_retained_message_has_its_properties(moved: Gateway) -> None:
    with Device(moved.mqtt_port, "new", BOB) as new:
        new.subscribe("plant/#", 1)
        message = new.got.get(timeout=LIMIT_S)
    assert (message.topic, message.payload, message.retain) == ("plant/a", b"kept", True)
    assert message.properties is not None and message.properties.UserProperty == [("unit", "K")]


def test_passwords_and_rules_are_those_of_mosquitto(moved: Gateway) -> None:
    with Device(moved.mqtt_port, "stranger", ("alice", "wrong")) as stranger:
        assert stranger.reason.is_failure
    refused: list[bool] = []
    with Device(moved.mqtt_port, "reader", BOB) as reader:
        reader.client.on_publish = lambda _, __, ___, reason, ____: refused.append(reason.is_failure)
        reader.publish("plant/x", "bob only reads here", 1)
        reader.publish("home/bob/x", "his own", 1)
    assert refused == [True, False]


def test_the_user_of_the_move_is_gone_and_a_second_move_does_nothing(
    moved: Gateway, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(moved)
    names = {user["name"] for user in api.get("users")}
    api.close()
    assert names == {"guest", "alice", "bob"}
    folder = moved.folder
    assert main(["migrate", "mosquitto", str(source), "--apply", *target(moved, folder)]) == 0
    assert "messages 0, sessions 0" in capsys.readouterr().out


def test_a_move_goes_on_after_a_kill_of_either_side(tmp_path: Path) -> None:
    sessions, each = 12, 3
    with mosquitto(tmp_path / "source") as running:
        with Device(running.mqtt_port, "sender") as sender:
            for number in range(sessions):
                with Device(running.mqtt_port, f"s{number}") as device:
                    device.subscribe("t/#", 1)
                for at in range(each):
                    sender.publish(f"t/{number}", str(at), 1)
            for number in range(40):
                sender.publish(f"r/{number}", "x", 1, retain=True)
    with Gateway(tmp_path / "target", settings=SETTINGS) as gateway:
        # The ports stay over a restart.
        gateway.settings["management.listen"] = f"127.0.0.1:{gateway.ports['management']}"
        state = tmp_path / "state.json"
        words = ["migrate", "mosquitto", str(tmp_path / "source" / "mosquitto.conf"), "--apply"]
        command = [sys.executable, "-m", "penstock", *words, *target(gateway, tmp_path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        first = subprocess.Popen(command, env=environment)
        until(state.exists)
        first.kill()
        first.wait()
        gateway.kill9()
        before = state.read_text()
        errors = tmp_path / "errors"
        with errors.open("wb") as file:
            second = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=file, text=True
            )
        try:
            until(lambda: second.poll() is not None or b"trying" in errors.read_bytes(), LIMIT_S)
            gateway.start()
            until(lambda: second.poll() is not None or state.read_text() != before, LIMIT_S)
            gateway.kill9()
            gateway.start()
            said, _ = second.communicate(timeout=LIMIT_S)
        finally:
            second.kill()
            second.wait()
        assert second.returncode == 0, (said, errors.read_text())
        assert "no answer from the management API" in errors.read_text()
        assert "went on after step" in said
        for number in range(sessions):
            wanted = [(f"t/{n}", str(at)) for n in range(number, sessions) for at in range(each)]
            with Device(gateway.mqtt_port, f"s{number}") as device:
                assert device.present
                got = device.take(len(wanted))
                # Only the messages that were under way may come twice.
                while len(set(got)) < len(set(wanted)):
                    got += device.take(1)
                assert list(dict.fromkeys(got)) == wanted
        with Device(gateway.mqtt_port, "new") as device:
            device.subscribe("r/#", 1)
            assert {topic for topic, _ in device.take(40)} == {f"r/{number}" for number in range(40)}
