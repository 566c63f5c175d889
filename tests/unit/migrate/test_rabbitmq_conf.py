"""Each line of rabbitmq.conf has a fate, and the options that come of them are penstock's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.config import load
from penstock.migrate.rabbitmq.conf import convert
from penstock.migrate.report import MigrationError, Report
from tests.support.brokers import RABBITMQ_SCRIPT

CERTIFICATE = "ssl_options.certfile = c.pem\nssl_options.keyfile = k.pem"

Converted = Callable[[str], Report]


@pytest.fixture
def converted(tmp_path: Path) -> Converted:
    """Converts the text of a rabbitmq.conf; its options must be a configuration of penstock."""

    def convert_text(text: str) -> Report:
        path = tmp_path / "rabbitmq.conf"
        path.write_text(text)
        report = convert(path)
        config = tmp_path / "penstock.toml"
        config.write_text(report.toml())
        load(file=config, environ={}, sets=[], flags={})
        return report

    return convert_text


def fates(report: Report) -> dict[str, str]:
    return {entry.text: entry.fate for entry in report.entries}


def test_no_setting_of_rabbitmqs_schemas_is_unknown(tmp_path: Path) -> None:
    lib = RABBITMQ_SCRIPT.parent.parent / "lib"
    schemas = sorted(lib.glob("rabbitmq_server-*/plugins/*/priv/schema/*.schema"))
    if not schemas:
        pytest.skip("RabbitMQ is not installed: apt-get install rabbitmq-server")
    names = {
        re.sub(r"\$\w+", "x1", name)
        for schema in schemas
        for name in re.findall(r'^\{mapping,\s*"([^"]+)"', schema.read_text(), re.MULTILINE)
    }
    assert len(names) > 500
    path = tmp_path / "rabbitmq.conf"
    path.write_text("".join(f"{name} = 1\n" for name in sorted(names)))
    report = convert(path)
    assert len(report.entries) == len(names)
    assert [entry.text for entry in report.entries if entry.fate == "unknown"] == []


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("listeners.tcp.default = 5673", {"amqp.listen": "0.0.0.0:5673"}),
        ("listeners.tcp.local = ::1:5673", {"amqp.listen": "[::1]:5673"}),
        ("listeners.tcp = none", {"amqp.listen": ""}),
        (f"listeners.ssl.1 = 127.0.0.1:5671\n{CERTIFICATE}", {"amqp.tls_listen": "127.0.0.1:5671"}),
        ("mqtt.listeners.tcp.default = 1884", {"mqtt.listen": "0.0.0.0:1884"}),
        (f"mqtt.listeners.ssl.default = 8883\n{CERTIFICATE}", {"mqtt.tls_listen": "0.0.0.0:8883"}),
        (
            "management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = 15673",
            {"management.listen": "127.0.0.1:15673"},
        ),
        ("prometheus.tcp.port = 9100", {"metrics.listen": "0.0.0.0:9100"}),
        ("web_mqtt.tcp.port = 15675\nweb_mqtt.ws_path = /x", {"mqtt.ws_paths": ["/x"]}),
        ("loopback_users = none", {"auth.loopback_users": []}),
        ("loopback_users.guest = false\nloopback_users.a = true", {"auth.loopback_users": ["a"]}),
        ("ssl_options.verify = verify_peer", {"tls.verify_client": "optional"}),
        (
            "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true",
            {"tls.verify_client": "required"},
        ),
        ("ssl_options.versions.1 = tlsv1.2\nssl_options.versions.2 = tlsv1.3", {"tls.min_version": "1.2"}),
        ("ssl_options.versions.1 = tlsv1.3", {"tls.min_version": "1.3"}),
        ("ssl_options.ciphers.1 = A\nssl_options.ciphers.2 = B", {"tls.ciphers": "A:B"}),
        ("vm_memory_high_watermark.relative = 0.6", {"server.memory_high_watermark": 0.6}),
        ("vm_memory_high_watermark.absolute = 2GB", {"server.memory_high_watermark": 2_000_000_000}),
        ("vm_memory_high_watermark.absolute = 2GiB", {"server.memory_high_watermark": 2 << 30}),
        ("disk_free_limit.absolute = 500M", {"log.min_free_bytes": 500 << 20}),
        ("heartbeat = 30\nframe_max = 0", {"amqp.heartbeat_s": 30, "amqp.frame_max": 16 << 20}),
        ("handshake_timeout = 5000", {"server.login_timeout_s": 5.0}),
        ("mqtt.subscription_ttl = 86400000", {"mqtt.session_expiry_max_s": 86_400}),
        ("log.console.level = critical", {"server.log_level": "error"}),
        ("default_user = ann\ndefault_user = bob", {"auth.default_user": "bob"}),
        ("default_pass = 'a b'", {"auth.default_password": "a b"}),
    ],
)
def test_a_line_becomes_options(text: str, wanted: dict[str, object], converted: Converted) -> None:
    report = converted(text + "\n")
    assert wanted.items() <= dict(report.options).items()
    assert "wrong" not in fates(report).values()


@pytest.mark.parametrize(
    "line",
    [
        "listeners.tcp.x = many",
        "vm_memory_high_watermark.relative = 60",
        "disk_free_limit.absolute = 5 apples",
        "heartbeat = often",
        "loopback_users.guest = maybe",
        "heartbeat 60",
    ],
)
def test_a_value_that_is_none_is_said(line: str, converted: Converted) -> None:
    assert fates(converted(line + "\n"))[line] == "wrong"


def test_a_name_that_nobody_knows_and_a_second_listener_are_said(converted: Converted) -> None:
    report = converted("heartbeats = 1\nlisteners.tcp.a = 5672\nlisteners.tcp.b = 5673\n")
    assert list(fates(report).values()) == ["unknown", "moved", "left out"]


def test_passwords_are_masked(converted: Converted) -> None:
    report = converted(
        "default_pass = hunter2\nssl_options.password = hunter2\nmqtt.default_pass = hunter2\n"
    )
    assert len(report.entries) == 3
    assert not any("hunter2" in entry.text for entry in report.entries)


def test_the_command_says_each_line_and_writes_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = tmp_path / "rabbitmq.conf", tmp_path / "penstock.toml"
    source.write_text("# mine\nheartbeat = 30\nconsumer_timeout = 9\n")
    assert main(["migrate", "conf", str(source), "--write", str(made)]) == 0
    said = capsys.readouterr().out
    assert f"{source}:2: heartbeat = 30\n    moved: amqp.heartbeat_s = 30\n" in said
    assert f"{source}:3: consumer_timeout = 9\n    left out: " in said
    assert made.read_text() == "[amqp]\nheartbeat_s = 30\n"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=r"none\.conf"):
        convert(tmp_path / "none.conf")
