"""Webhooks as they are kept and kept from harm: kills, restarts, secrets, rights, where they may not lead."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import ROOT, BrokerFailed, Gateway, free_port
from tests.support.hooks import FAST, LOCAL, Hooks, bodies, check_hmac
from tests.support.limits import LIMIT_S
from tests.support.management import Api
from tests.support.receiver import Receiver, Reply

pytestmark = pytest.mark.penstock_only("webhooks are penstock's own")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("webhooks"), settings=LOCAL) as running:
        yield running


def test_nothing_is_lost_when_gateway_and_receiver_are_killed(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    port, kept = free_port(), tmp_path / "kept"
    kept.touch()

    def receive() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.receiver", str(port), str(kept)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stdout.readline().startswith(b"serving")
        process.stdout.close()
        return process

    def delivered() -> set[str]:
        return {base64.b64decode(line).decode() for line in kept.read_bytes().splitlines()}

    process = receive()
    gateway = Gateway(tmp_path / "gateway", settings=LOCAL)
    try:
        gateway.start()
        hooks = hooks_of(gateway)
        hooks.queue(unique)
        retry = {**FAST, "schedule_ms": [50] * 100}
        hooks.put(
            unique, source={"queue": unique}, url=f"http://127.0.0.1:{port}/", retry=retry, ordering="strict"
        )
        hooks.publish(unique, *(f"a{n}" for n in range(300)))
        deadline = time.monotonic() + 60
        while len(delivered()) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
        process.wait()
        hooks.wait(unique, lambda shown: shown["results"]["failed"] > 0)
        gateway.kill9()
        process = receive()
        gateway.start()
        hooks = hooks_of(gateway)
        hooks.wait(unique, lambda shown: shown["backlog"] == 0 and shown["held"] == 0)
        lines = [base64.b64decode(line).decode() for line in kept.read_bytes().splitlines()]
        assert list(dict.fromkeys(lines)) == [f"a{n}" for n in range(300)]
        assert hooks.show(unique)["state"] == "active"
    finally:
        gateway.kill9()
        process.kill()
        process.wait()


def test_a_pause_and_its_settings_outlive_a_restart(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    with Receiver() as receiver, Gateway(tmp_path / "gateway", settings=LOCAL) as gateway:
        hooks = hooks_of(gateway)
        secret = hooks.follow(unique, receiver)
        assert hooks.post(f"webhooks/{unique}/pause").json()["state"] == "paused"
        hooks.publish(unique, "kept")
        gateway.restart()
        hooks = hooks_of(gateway)
        assert hooks.show(unique)["state"] == "paused" and not receiver.got
        hooks.post(f"webhooks/{unique}/resume")
        check_hmac(receiver.wait_count(1)[0], secret)
        assert hooks.client.delete(f"webhooks/{unique}").status_code == 204
        assert hooks.client.get(f"webhooks/{unique}").status_code == 404


def test_a_stop_does_not_wait_for_a_receiver_that_has_not_agreed(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    settings = {**LOCAL, "server.drain_timeout_s": 3600}
    with Receiver() as receiver, Gateway(tmp_path / "gateway", settings=settings) as gateway:
        receiver.grants = False
        hooks = hooks_of(gateway)
        hooks.queue(unique)
        hooks.put(unique, source={"queue": unique}, url=receiver.url)
        hooks.wait(unique, lambda shown: "OPTIONS" in shown["last_error"])
        assert gateway.terminate() == 0


def test_a_webhook_that_the_configuration_now_forbids_is_kept_and_says_why(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    with Receiver() as receiver, Gateway(tmp_path / "gateway", settings=LOCAL) as gateway:
        hooks = hooks_of(gateway)
        secret = hooks.follow(unique, receiver)
        gateway.settings["webhooks.allow_networks"] = "10.0.0.0/8"
        gateway.restart()
        hooks, api = hooks_of(gateway), Api(gateway)
        hooks.publish(unique, "kept")
        shown = hooks.show(unique)
        assert shown["state"] == "broken" and "webhooks.allow_networks" in shown["reason"]
        assert hooks.post(f"webhooks/{unique}/resume").json()["state"] == "broken"
        refused = hooks.post(f"webhooks/{unique}/replay")
        assert refused.status_code == 409 and shown["reason"] in refused.json()["detail"]
        tried = hooks.post(f"webhooks/{unique}/test").json()
        assert tried["answer"] == f"broken: {shown['reason']}"
        for command in ("webhooks list", "doctor"):
            url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
            ran = subprocess.run(
                [sys.executable, "-m", "penstock", *command.split(), "--url", url],
                env={"PYTHONPATH": str(ROOT / "src")},
                capture_output=True,
                text=True,
                timeout=120,
            )
            told = [line for line in ran.stdout.splitlines() if unique in line and "broken" in line]
            assert len(told) == 1, ran.stdout + ran.stderr
        assert [item["name"] for item in api.get("definitions")["webhooks"]] == [unique], "it is exported"
        api.close()
        gateway.settings["webhooks.allow_networks"] = LOCAL["webhooks.allow_networks"]
        gateway.restart()
        check_hmac(receiver.wait_count(1)[0], secret)
        assert hooks_of(gateway).show(unique)["state"] == "active"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://10.0.0.1/", "not a public address"),
        ("http://[::ffff:10.0.0.1]/", "not a public address"),
        ("http://[64:ff9b::a9fe:a9fe]/latest/meta-data", "not a public address"),
        ("https://user:secret@example.org/", "user name"),
        ("ftp://example.org/", "https://"),
        ("http://192.0.2.1:22/", "not a public address"),
        ("https://8.8.8.8:22/", "webhooks.ports"),
        ("http://8.8.8.8/", "webhooks.allow_http"),
    ],
)
def test_urls_into_private_networks_are_refused(hooks: Hooks, unique: str, url: str, word: str) -> None:
    hooks.queue(unique)
    answer = hooks.client.put(f"webhooks/{unique}", json={"source": {"queue": unique}, "url": url})
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["code"] == "forbidden_target" and word in problem["detail"]


def test_a_name_for_a_private_address_gets_no_request(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    settings = {key: value for key, value in LOCAL.items() if key != "webhooks.allow_networks"}
    with (
        Receiver() as receiver,
        Gateway(tmp_path / "gateway", settings={**settings, "webhooks.allow_http": "true"}) as gateway,
    ):
        hooks = hooks_of(gateway)
        hooks.queue(unique)
        hooks.publish(unique, "never")
        hooks.put(
            unique,
            source={"queue": unique},
            url=f"http://localhost:{receiver.port}/",
            verify="none",
            retry={**FAST, "schedule_ms": []},
        )
        hooks.wait(unique, lambda shown: shown["dead"] == 1)
        (attempt,) = hooks.attempts(unique, 1)
        assert attempt["answer"].startswith("forbidden:")
        assert not receiver.got and not receiver.options


def test_rights_to_make_one(gateway: Gateway, hooks: Hooks, receiver: Receiver, unique: str) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": ""}) == 201
    rights = {"configure": f"^webhook\\.{unique}", "write": "", "read": f"^{unique}$"}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    hooks.queue(unique)
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/"
    with httpx.Client(base_url=base, auth=(unique, "p"), timeout=60) as client:
        body = {"source": {"queue": unique}, "url": receiver.url}
        assert client.put("webhooks/other", json=body).status_code == 403
        assert client.put(f"webhooks/{unique}", json={**body, "verify": "none"}).status_code == 403
        elsewhere = {**body, "source": {"exchange": "amq.topic", "routing_key": "#"}}
        assert client.put(f"webhooks/{unique}", json=elsewhere).status_code == 403
        assert client.put(f"webhooks/{unique}", json=body).status_code == 201
        hooks.wait(unique, lambda shown: shown["state"] == "active")
        assert api.status("PUT", f"permissions/%2F/{unique}", {**rights, "read": "^$"}) == 204
        shown = hooks.wait(unique, lambda shown: shown["state"] == "disabled")
        assert unique in shown["reason"]
    api.close()


def test_the_management_api_metrics_and_the_command_show_them(
    gateway: Gateway, hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    hooks.queue(unique)

    def command(*words: str) -> str:
        url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
        verb, *rest = words
        ran = subprocess.run(
            [sys.executable, "-m", "penstock", "webhooks", verb, "--url", url, *rest],
            env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    settings = json.dumps(
        {"source": {"queue": unique}, "url": receiver.url, "format": "raw", "timeout_ms": 120_000}
    )
    assert json.loads(command("set", unique, settings, "-o", "json"))["secret"].startswith("whsec_")
    hooks.publish(unique, "seen")
    hooks.wait(unique, lambda shown: shown["delivered"] == 1)
    api = Api(gateway)
    assert [item["delivered"] for item in api.get("webhooks/%2F") if item["name"] == unique] == [1]
    assert api.get(f"webhooks/%2F/{unique}")["url"] == receiver.url
    api.close()
    assert unique in command("list")
    assert json.loads(command("show", unique, "-o", "json"))["state"] == "active"
    assert json.loads(command("test", unique, "-o", "json"))["status"] == 200
    hooks.attempts(unique, 1)  # which shows what is synced, and a disk may take its time
    (attempt,) = json.loads(command("attempts", unique, "-o", "json"))
    assert attempt["status"] == 200, "the test of before is no attempt at a delivery"
    page = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics", timeout=LIMIT_S).text
    assert 'penstock_webhook_attempts_total{result="done"}' in page
    command("delete", unique)
    assert unique not in command("list")


def test_a_filter_sends_some_and_takes_all(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.queue(unique)
    wanted = {"headers": {"shop": "north"}, "types": ["sale"]}
    hooks.put(unique, source={"queue": unique}, url=receiver.url, filter=wanted)
    hooks.publish(unique, "no", type="refund", headers={"shop": "north"})
    hooks.publish(unique, "yes", type="sale", headers={"shop": "north"})
    hooks.publish(unique, "no", type="sale")
    hooks.publish(unique, "yes too", type="sale", headers={"shop": "north"})
    shown = hooks.wait(unique, lambda shown: shown["delivered"] == 2 and shown["filtered"] == 2)
    assert shown["backlog"] == 0
    assert bodies(receiver.wait_count(2)) == ["yes", "yes too"]


def test_secrets_are_sealed_in_the_log(
    tmp_path: Path, unique: str, hooks_of: Callable[[Gateway], Hooks]
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    secret = "whsec_" + base64.b64encode(b"s" * 32).decode()
    with Receiver() as receiver:
        gateway = Gateway(tmp_path / "gateway", settings={**LOCAL, "webhooks.key_file": str(key)})
        with gateway:
            hooks = hooks_of(gateway)
            hooks.queue(unique)
            settings = {"source": {"queue": unique}, "url": receiver.url}
            auth = {"type": "bearer", "token": "canary-bearer"}
            hooks.put(unique, **settings, secret=secret, headers={"x-token": "canary-token"}, auth=auth)
            hooks.publish(unique, "one")
            check_hmac(receiver.wait_count(1)[0], secret)
            hooks.wait(unique, lambda shown: shown["delivered"] == 1)
            gateway.restart()
            hooks = hooks_of(gateway)
            hooks.publish(unique, "two")
            got = receiver.wait_count(2)[1]
            check_hmac(got, secret)
            assert got.headers["x-token"] == "canary-token"
            assert got.headers["authorization"] == "Bearer canary-bearer"
        everything = b"".join(path.read_bytes() for path in gateway.folder.rglob("*") if path.is_file())
        assert secret.encode() not in everything and b"canary-" not in everything
        key.write_bytes(b"z" * 32)
        with pytest.raises(BrokerFailed, match="another key"):
            gateway.start()


def test_attempts_and_log_lines_are_heard_as_they_happen(
    gateway: Gateway, hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    api = Api(gateway)
    assert api.status("PUT", f"users/{unique}", {"password": unique, "tags": ""}) in (201, 204)
    rights = {"configure": f"^webhook.{unique}", "write": "", "read": ""}
    assert api.status("PUT", f"permissions/%2F/{unique}", rights) in (201, 204)
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url)
    found: list[tuple[str, Any]] = []
    heard = threading.Event()

    def listen() -> None:
        with hooks.client.stream("GET", "tail?events=log,webhooks") as answer:
            kind = ""
            for line in answer.iter_lines():
                heard.set()
                if line.startswith("event: "):
                    kind = line[7:]
                if line.startswith("data: "):
                    found.append((kind, json.loads(line[6:])))
                if {kind for kind, _ in found} == {"log", "webhooks"}:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert heard.wait(60)
    hooks.publish(unique, "one", message_id="m")
    hooks.wait(unique, lambda shown: shown["delivered"] == 1)
    receiver.reply = lambda got: Reply(410)
    hooks.publish(unique, "two")  # which switches it off, and the log says so
    thread.join(60)
    attempts = [event for kind, event in found if kind == "webhooks"]
    assert (attempts[0]["webhook"], attempts[0]["ids"], attempts[0]["status"]) == (unique, ["m"], 200)
    lines = [event for kind, event in found if kind == "log"]
    assert lines and all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    client = {"base_url": hooks.client.base_url, "auth": (unique, unique), "timeout": 60}
    with httpx.Client(**client) as other:  # type: ignore[arg-type]
        refused = other.get("tail?events=log")
        assert (refused.status_code, refused.json()["code"]) == (403, "access_refused")
        with other.stream("GET", "tail?events=webhooks") as answer:
            assert answer.status_code == 200, "those of webhooks that he may steer"
        for bad in ("events=logs", "events=log&topic=a", ""):
            wrong = other.get(f"tail?{bad}")
            assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_field"), bad
    api.close()
