"""Options of MQTT for real clients: `acl_file`, `sys_interval_s`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import BrokerFailed, Gateway, Mosquitto
from tests.support.data_plane import until
from tests.support.mosquitto_clients import command, publish, received, subscriber
from tests.support.mqtt_wire import Gate

pytestmark = [
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="apt-get install mosquitto-clients"),
]

ACL = """
# of everybody without a name
topic read public/#
topic read $SYS/broker/version
topic deny public/secret
user guest
topic readwrite own/#
topic write drop/box
pattern write from/%c
"""
LOGIN = ["-u", "guest", "-P", "guest"]


def granted(port: int, version: str, topic: str, *words: str) -> bool:
    """Whether SUBACK grants the subscription."""
    asked = command("sub", port, version, "-d", "-E", "-W", "30", "-t", topic, *words)
    shown = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert "Subscribed (mid: 1): " in shown.stdout, shown
    return int(shown.stdout.split("Subscribed (mid: 1): ")[1].split()[0]) < 0x80


def accepted(port: int, topic: str, *words: str) -> bool:
    """Whether PUBACK accepts the message."""
    sent = command("pub", port, "mqttv5", "-d", "-q", "1", "-t", topic, "-m", "x", *words)
    shown = subprocess.run(sent, capture_output=True, text=True, timeout=60, check=False)
    assert "received PUBACK (Mid: 1, RC:" in shown.stdout, shown
    return "RC:135" not in shown.stdout


def acl_rights(port: int, name: list[str]) -> dict[str, bool]:
    """The rights of a client whose name has these words."""
    version = "mqttv5"
    return {
        **{f"read {t}": granted(port, version, t, *name) for t in ("public/#", "own/x", "drop/box", "other")},
        **{f"write {t}": accepted(port, t, *name) for t in ("public/x", "own/x", "drop/box")},
        "write from/me": accepted(port, "from/me", "-i", "me", *name),
        "write from/you": accepted(port, "from/you", "-i", "me", *name),
    }


def test_the_rights_of_an_acl_file_hold(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(ACL)
    with Gateway(tmp_path, settings={"mqtt.acl_file": str(tmp_path / "acl")}) as gateway:
        port = gateway.mqtt_port
        assert acl_rights(port, LOGIN) == {
            "read public/#": True,  # a part of it: see test_wide_subscriptions
            "read own/x": True,
            "read drop/box": False,
            "read other": False,
            "write public/x": False,
            "write own/x": True,
            "write drop/box": True,
            "write from/me": True,
            "write from/you": False,
        }
        for version in ("mqttv31", "mqttv311"):
            assert granted(port, version, "#", *LOGIN) and not granted(port, version, "other/#", *LOGIN)
        # Without a name: the default user's rights, and the lines for such clients.
        assert granted(port, "mqttv5", "public/open") and not granted(port, "mqttv5", "public/secret")
        with subscriber(port, "mqttv311", "-t", "$SYS/broker/version") as sub:
            assert received(sub, 1)[0].startswith("penstock ")
        # A will is a publish like others.
        refused = command("sub", port, "mqttv5", "-t", "own/x", "--will-topic", "other", "-W", "30", *LOGIN)
        shown = subprocess.run(refused, capture_output=True, text=True, timeout=60, check=False)
        assert "Not authorized" in shown.stderr
        # A 3.1.1 client is not told that a publish was refused: the log is.
        until(lambda: "publish refused: this user may not publish here" in gateway.log_text())


def test_mosquitto_reads_the_same_file_in_the_same_way(tmp_path: Path) -> None:
    """For one with a name. It grants every subscription, also those that can bring nothing."""
    (tmp_path / "acl").write_text(ACL)
    with Mosquitto(tmp_path, options=(f"acl_file {tmp_path / 'acl'}",)) as mosquitto:
        rights = acl_rights(mosquitto.mqtt_port, LOGIN)
    writes = {right: may for right, may in rights.items() if right.startswith("write")}
    assert writes == {
        "write public/x": False,
        "write own/x": True,
        "write drop/box": True,
        "write from/me": True,
        "write from/you": False,
    }


def test_a_wrong_acl_file_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic sometimes a/b\n")
    broken = Gateway(tmp_path, settings={"mqtt.acl_file": str(tmp_path / "acl")})
    with pytest.raises(BrokerFailed):
        broken.start()
    assert f"mqtt.acl_file: {tmp_path / 'acl'}, line 1: 'sometimes a/b' is no access" in broken.log_text()


def test_without_an_interval_there_are_no_figures(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={"mqtt.sys_interval_s": "0"}) as gateway:
        port = gateway.mqtt_port
        for version in ("mqttv311", "mqttv5"):
            with subscriber(port, version, "-t", "$SYS/#", "-t", "after", "-v") as sub:
                # Retained messages come behind SUBACK, and this one behind those.
                publish(port, version, "-t", "after", "-m", "it", "-q", "1")
                assert received(sub, 1) == ["after it"]
        assert not accepted(port, "$SYS/broker/version")  # still nobody's to publish


def refusal(port: int, version: int, **login: Any) -> int:
    """The code of CONNACK."""
    gate = Gate(port, version)
    code = gate.wire().connect("any", **login).codes[0]
    gate.close()
    return code


@pytest.mark.parametrize("version", [3, 4, 5])
def test_any_login_is_let_in_where_that_is_allowed_as_mosquitto_does(tmp_path: Path, version: int) -> None:
    """Of names that nobody has: a known user needs its password all the same."""
    strange, wrong = {"user": "nobody", "password": b"x"}, {"user": "guest", "password": b"wrong"}
    nameless = {"user": "nobody"}
    with Gateway(tmp_path / "closed") as gateway:
        refused = 0x86 if version == 5 else 4
        assert refusal(gateway.mqtt_port, version, **strange) == refused
        assert "allow_any_login" not in gateway.log_text()
    settings = {"mqtt.allow_any_login": "loopback"}
    with Gateway(tmp_path / "open", settings=settings) as gateway, Mosquitto(tmp_path / "m") as mosquitto:
        for login in (strange, nameless, {"user": "", "password": b""}):
            assert refusal(gateway.mqtt_port, version, **login) == 0, login
            assert refusal(mosquitto.mqtt_port, version, **login) == 0, login
        assert refusal(gateway.mqtt_port, version, **wrong) == refused
        assert refusal(gateway.mqtt_port, version, user="guest", password=b"guest") == 0
        assert "mqtt.allow_any_login: clients of this machine get in" in gateway.log_text()
        until(lambda: "user=guest" in gateway.log_text())
