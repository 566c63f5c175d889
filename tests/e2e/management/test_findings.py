"""Errors and warnings of a running gateway about itself: none with the defaults, and each with its cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.command import main
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such list")

UNSAFE = {
    "log.fsync": "never",
    "auth.loopback_users": "[]",
    "mqtt.allow_anonymous": "true",
    "mqtt.allow_any_login": "loopback",
}


@pytest.fixture
def unsafe(tmp_path: Path) -> Iterator[Gateway]:
    pair = Authority(tmp_path / "ca").server("server", "one.example.org")
    tls = {
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "amqp.tls_listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path / "gateway", settings={**SETTINGS, **UNSAFE, **tls}) as running:
        yield running


def _found(api: Api) -> dict[str, dict[str, Any]]:
    return {one["what"]: one for one in api.get("findings")}


def test_a_gateway_with_the_defaults_finds_no_error(gateway: Gateway) -> None:
    with closing(Api(gateway)) as api:
        found = _found(api)
        assert [one for one in found.values() if one["level"] == "error"] == []
        assert found.keys().isdisjoint({*UNSAFE, "auth.default_password", "certificate", "recovery", "clock"})


def test_unsafe_settings_are_found_in_the_words_of_doctor(
    unsafe: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Api(unsafe)) as api:
        found = _found(api)
    errors = ("log.fsync", "auth.default_password", "mqtt.allow_anonymous")
    assert [found[what]["level"] for what in errors] == ["error"] * 3
    assert found["mqtt.allow_any_login"]["level"] == "warning"
    sets = [word for option, value in UNSAFE.items() for word in ("--set", f"{option}={value}")]
    assert main(["doctor", "--data", str(tmp_path / "none"), *sets, "--url", "http://127.0.0.1:1"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    for what in (*errors, "mqtt.allow_any_login"):
        one = found[what]
        assert f"{one['level']}: {what}: {one['text']} {one['remedy']}" in said


def test_errors_come_first_and_a_cause_that_is_gone_is_not_found(unsafe: Gateway) -> None:
    with closing(Api(unsafe)) as api:
        levels = [one["level"] for one in api.get("findings")]
        assert levels == sorted(levels, key=("error", "warning", "info").index) and levels[0] == "error"
        certificate = _found(api)["certificate"]
        assert certificate["level"] == "warning" and "CN=one.example.org ends on" in certificate["text"]
        assert api.status("PUT", "users/guest", {"password": "other", "tags": "administrator"}) == 204
    with closing(Api(unsafe, password="other")) as api:
        found = _found(api)
        assert "auth.default_password" not in found and "log.fsync" in found
    unsafe.data_dir.chmod(0o755)
    with closing(Api(unsafe, password="other")) as api:
        assert "mode 055" in _found(api)["log.data_dir"]["text"]


def test_a_run_that_did_not_stop_is_told_to_the_next_one(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings=SETTINGS) as gateway:
        gateway.kill9()
        gateway.start()
        with closing(Api(gateway)) as api:
            told = _found(api)["recovery"]
            assert told["level"] == "info" and "did not stop cleanly" in told["text"]
