"""Each line of mosquitto.conf has a fate, and the options that come of them are penstock's."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import load
from penstock.migrate.mosquitto.convert import Conversion, convert
from penstock.migrate.report import MigrationError
from penstock.protocols.mqtt.auth.acl import AclFile
from penstock.router.authorization.identity import Identity

EXAMPLE = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf")

Converted = Callable[[str], Conversion]


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    """Converts the text of a mosquitto.conf; its options must be a configuration of penstock."""

    def convert_text(text: str) -> Conversion:
        path = tmp_path / "mosquitto.conf"
        path.write_text(text)
        made = convert(path)
        config = tmp_path / "penstock.toml"
        config.write_text(made.report.toml())
        load(file=config, environ={}, sets=[], flags={})
        return made

    return convert_text


def options(made: Conversion) -> dict[str, object]:
    return dict(made.report.options)


def fates(made: Conversion) -> dict[str, str]:
    return {entry.text: entry.fate for entry in made.report.entries}


def test_no_setting_of_mosquittos_example_is_unknown(converted: Converted) -> None:
    if not EXAMPLE.exists():
        pytest.skip("Mosquitto is not installed: apt-get install mosquitto")
    # Defaults stand there as comments: `#name value`.
    names = set(re.findall(r"^#([a-z][a-z0-9_.]+)", EXAMPLE.read_text(), re.MULTILINE))
    assert len(names) >= 80
    # The files that they would name are not there.
    names -= {"include_dir", "acl_file", "password_file"}
    made = converted("".join(f"{name} x\n" for name in sorted(names)))
    assert {entry.text for entry in made.report.entries if entry.fate == "unknown"} == set()


def test_a_setting_that_nobody_knows_is_said(converted: Converted) -> None:
    made = converted("max_clients 5\n")
    assert fates(made)["max_clients 5"] == "unknown"


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("listener 1884", {"mqtt.listen": "0.0.0.0:1884", "mqtt.allow_anonymous": False}),
        ("listener 1884 ::1", {"mqtt.listen": "[::1]:1884"}),
        ("listener 1884\nsocket_domain ipv6", {"mqtt.listen": "[::]:1884"}),
        ("port 1884\nbind_address 127.0.0.1", {"mqtt.listen": "127.0.0.1:1884"}),
        ("listener 0 /run/m.sock", {"mqtt.unix_listen": "/run/m.sock"}),
        ("listener 9001\nprotocol websockets", {"mqtt.ws_listen": "0.0.0.0:9001"}),
        (
            "listener 8883\ncertfile c.pem\nkeyfile k.pem",
            {"mqtt.tls_listen": "0.0.0.0:8883", "tls.cert_file": "c.pem", "tls.key_file": "k.pem"},
        ),
        (
            "listener 9002\nprotocol websockets\ncertfile c.pem",
            {"mqtt.wss_listen": "0.0.0.0:9002", "tls.cert_file": "c.pem"},
        ),
        ("", {"mqtt.listen": "127.0.0.1:1883", "mqtt.allow_anonymous": "loopback"}),
        ("listener 1883\nallow_anonymous true", {"mqtt.allow_anonymous": True, "mqtt.allow_any_login": True}),
        ("max_inflight_messages 0", {"mqtt.max_inflight": 65_535}),
        ("max_queued_messages 50", {"mqtt.max_queued_messages": 50, "mqtt.queue_full": "drop-newest"}),
        ("max_queued_messages 0", {"mqtt.max_queued_messages": 0}),
        ("persistent_client_expiration 2w", {"mqtt.session_expiry_max_s": 1_209_600}),
        ("max_packet_size 100", {"mqtt.max_packet_bytes": 1024}),
        ("message_size_limit 1000", {"mqtt.max_packet_bytes": 66_600}),
        ("use_subject_as_username true", {"tls.cert_login_from": "distinguished_name"}),
        ("log_type all", {"server.log_level": "debug"}),
        ("sys_interval 10\nsys_interval 20", {"mqtt.sys_interval_s": 20}),
    ],
)
def test_a_line_becomes_options(text: str, wanted: dict[str, object], converted: Converted) -> None:
    assert wanted.items() <= options(converted(text)).items()


def test_a_second_listener_of_a_kind_is_left_out(converted: Converted) -> None:
    made = converted("listener 1883\nlistener 1884\nlistener 9001\nprotocol websockets\n")
    assert fates(made)["listener 1883"] == fates(made)["listener 9001"] == "moved"
    assert fates(made)["listener 1884"] == "left out"


@pytest.mark.parametrize("line", ["allow_anonymous maybe", "sys_interval x", "listener 0", "max_qos 3"])
def test_a_value_that_is_none_is_said(line: str, converted: Converted) -> None:
    assert fates(converted(line + "\n"))[line] == "wrong"


def test_passwords_are_masked(converted: Converted) -> None:
    made = converted("connection out\nremote_password hunter2\nbridge_psk c0ffee\n")
    assert not any("hunter2" in entry.text or "c0ffee" in entry.text for entry in made.report.entries)


def test_bridges_become_an_option(converted: Converted) -> None:
    made = converted(
        "allow_anonymous true\n"
        "topic early/# out\n"
        "connection plant\n"
        "address broker.example.org other.example.org:1884\n"
        'topic sensors/# out 1 "" far/\n'
        "topic set/# in 2\n"
        "bridge_protocol_version mqttv50\n"
        "remote_password hunter2\n"
        "bridge_cafile /etc/ca.pem\n"
        "restart_timeout 10 30\n"
        "cleansession maybe\n"
        "threshold 5\n"
        "start_type automatic\n"
        "connection broken\n"
        "address h\n"
    )
    assert options(made)["links.bridges"] == [
        {
            "name": "plant",
            "topics": ['sensors/# out 1 "" far/', "set/# in 2"],
            "address": "broker.example.org:1883",
            "protocol_version": "mqttv50",
            "remote_password": "hunter2",
            "cafile": "/etc/ca.pem",
            "tls": True,
            "restart_timeout": 10,
        }
    ]
    found = fates(made)
    assert found["topic early/# out"] == found["cleansession maybe"] == found["connection broken"] == "wrong"
    assert found["threshold 5"] == "left out" and found["start_type automatic"] == "same"
    assert found["topic set/# in 2"] == found["remote_password ********"] == "moved"
    assert "hunter2" in made.report.toml() and "hunter2" not in made.report.toml(secrets=False)
    assert "hunter2" not in repr(made.report.shown())


def test_included_files_stand_at_their_place(converted: Converted, tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("sys_interval 2\n")
    (folder / "a.conf").write_text("sys_interval 1\n")
    (folder / "ignored.txt").write_text("sys_interval 9\n")
    made = converted(f"include_dir {folder}\nmax_keepalive 60\n")
    assert options(made)["mqtt.sys_interval_s"] == 2
    read = [(Path(entry.place.file).name, entry.place.line) for entry in made.report.entries[:4]]
    assert read == [("mosquitto.conf", 1), ("a.conf", 1), ("b.conf", 1), ("mosquitto.conf", 2)]


def test_a_file_that_is_missing_is_named(converted: Converted, tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=r"none\.txt"):
        converted(f"password_file {tmp_path}/none.txt\n")


def test_lines_of_passwords_and_rules_that_cannot_be_used_are_said(
    converted: Converted, tmp_path: Path
) -> None:
    (tmp_path / "passwords").write_text("plain:secret\n# a comment\n")
    (tmp_path / "rules").write_text("topic read a/#\ntopic deny a/#/b\nanything else\n")
    made = converted(f"password_file {tmp_path}/passwords\nacl_file {tmp_path}/rules\n")
    assert made.users == []
    assert fates(made)["plain:********"] == "wrong"
    assert fates(made)["topic read a/#"] == "moved"
    loose = next(entry for entry in made.report.entries if entry.text == "topic deny a/#/b")
    assert loose.fate == "left out" and "more is allowed" in loose.note
    assert "# left out: anything else" in made.acl


def test_a_bridge_speaks_as_mosquitto_does_by_default(converted: Converted) -> None:
    (bridge,) = options(converted("connection one\naddress a:1\ntopic # out\n"))["links.bridges"]
    assert bridge["protocol_version"] == "mqttv311"


def test_no_rule_of_an_acl_file_counts_for_a_bridge(converted: Converted, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("user plant\ntopic read a/#\n")
    bridges = "connection one\naddress a:1\ntopic # out\n"
    bridges += "connection two\naddress b:1\nlocal_username plant\ntopic # out\n"
    made = converted(f"{bridges}acl_file {tmp_path}/rules\n")
    tables = tomllib.loads(made.report.toml())["links"]["bridges"]
    assert [one["local_username"] for one in tables] == ["penstock-bridge", "plant"]
    assert [user["name"] for user in made.users] == ["penstock-bridge"]
    rules, place = AclFile(made.acl, "acl", "guest"), "$SYS/broker/connection/x/state"
    for topic in ("b", place):
        assert rules.allow(Identity("penstock-bridge"), "write", topic)
        assert not rules.allow(Identity("plant"), "write", topic)
    # Without an ACL file everybody may use every topic.
    assert "local_username" not in converted(bridges.partition("connection two")[0]).report.toml()


def test_texts_survive_toml(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    odd = 'a"b\\c\x7fé'
    path.write_text(f"listener 8883\ncertfile {odd}\n")
    assert tomllib.loads(convert(path).report.toml())["tls"]["cert_file"] == odd
