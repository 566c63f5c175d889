"""The audit trail of a running gateway: who did what, from where; and that it is whole, also after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest

from penstock.sdk.errors import LoginRefused
from penstock.sync import connect
from tests.support.brokers import Gateway
from tests.support.hooks import LOCAL
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("the audit trail is penstock's own")

NATIVE = {**LOCAL, "native.listen": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("audit"), settings=NATIVE) as running:
        yield running


def trail(api: Api, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("audit?" + "&".join(f"{k}={v}" for k, v in query.items()))
    return found


def of(api: Api, name: str, **query: str) -> list[dict[str, Any]]:
    """The entries about something of this name."""
    return [entry for entry in trail(api, **query) if name in json.dumps(entry["target"])]


def command(gateway: Gateway, *words: str) -> subprocess.CompletedProcess[str]:
    url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    line = [sys.executable, "-m", "penstock", "audit", *words, "--url", url]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


def test_administration_is_noted_with_before_and_after(api: Api, unique: str) -> None:
    def put(path: str, body: object) -> None:
        assert api.status("PUT", path, body) in (200, 201, 204), path

    put(f"users/{unique}", {"password": "canary-1", "tags": "monitoring"})
    put(f"users/{unique}", {"password": "canary-2", "tags": "monitoring,management"})
    put(f"vhosts/{unique}", {"description": "d"})
    put(f"permissions/{unique}/{unique}", {"configure": "", "write": "", "read": ".*"})
    put(f"policies/{unique}/p", {"pattern": "^q", "definition": {"max-length": 5}, "apply-to": "queues"})
    put(f"queues/{unique}/q", {"durable": True, "arguments": {"x-max-length": 7}})
    put(f"exchanges/{unique}/x", {"type": "topic", "durable": True})
    assert api.status("POST", f"bindings/{unique}/e/x/q/q", {"routing_key": "a.#"}) == 201
    assert api.status("DELETE", f"queues/{unique}/q/contents") == 204
    put(f"vhost-limits/{unique}/max-queues", {"value": 3})
    assert api.status("PUT", f"queues/{unique}/bad", {"arguments": {"x-max-length": -1}}) == 400
    assert api.status("DELETE", f"users/{unique}") == 204
    entries = of(api, unique)
    assert [(one["action"], one["result"]) for one in entries] == [
        ("user.put", "done"),
        ("user.put", "done"),
        ("vhost.put", "done"),
        ("permission.set", "done"),
        ("policy.put", "done"),
        ("queue.declare", "done"),
        ("exchange.declare", "done"),
        ("binding.add", "done"),
        ("queue.purge", "done"),
        ("vhost-limit.set", "done"),
        ("queue.declare", "refused"),
        ("user.delete", "done"),
    ]
    assert all(
        (one["user"], one["peer"], one["protocol"]) == ("guest", "127.0.0.1", "http") for one in entries
    )
    made, changed, vhost, permission, policy, queue, _, binding, _, limit, refused, deleted = entries
    assert made["before"] is None and made["after"]["tags"] == ["monitoring"]
    assert changed["before"]["tags"] == ["monitoring"] and changed["after"]["changed"] == ["password"]
    assert vhost["after"]["description"] == "d" and permission["after"]["read"] == ".*"
    assert policy["after"]["definition"] == {"max-length": 5}
    assert queue["after"]["arguments"] == {"x-max-length": 7}
    assert binding["after"]["newest"]["routing_key"] == "a.#"
    assert (limit["before"]["limits"], limit["after"]["limits"]) == ({}, {"max-queues": 3})
    assert "x-max-length" in refused["detail"] and deleted["after"] is None
    assert "canary" not in json.dumps(entries)


def test_webhooks_tokens_imports_and_closing_are_noted(gateway: Gateway, api: Api, unique: str) -> None:
    base = f"http://127.0.0.1:{gateway.ports['http']}/v1/"
    with httpx.Client(base_url=base, auth=("guest", "guest"), timeout=60) as data:
        assert data.put(f"vhosts/%2F/streams/{unique}").status_code == 201
        hook = {
            "source": {"stream": unique},
            "url": "https://127.0.0.1:9/?key=canary-query",
            "headers": {"x-key": "canary-header"},
            "auth": {"type": "bearer", "token": "canary-token"},
            "verify": "none",
        }
        path = f"vhosts/%2F/webhooks/{unique}"
        secret = data.put(path, json=hook).json()["secret"]
        hook["auth"] = {"type": "bearer", "token": "canary-other"}
        assert data.put(path, json=hook).status_code == 200
        assert data.post(f"{path}/pause").status_code == 200
        token = data.post("tokens", json={"name": unique}).json()["token"]
        assert data.delete(f"tokens/{unique}").status_code == 204
        assert data.delete(path).status_code == 204
    definitions = {"vhosts": [{"name": unique}]}
    assert api.status("POST", "definitions", definitions) == 204
    assert api.status("POST", "definitions", {"vhosts": [{"nonsense": 1}]}) == 400
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.ports["amqp"]))
    (live,) = [one["name"] for one in api.get("connections") if one["protocol"].startswith("AMQP")]
    assert api.status("DELETE", f"connections/{live}") == 204
    with pytest.raises(pika.exceptions.AMQPError):
        while True:
            client.process_data_events(60)
    hooks = of(api, unique, action="webhook")
    assert [one["action"] for one in hooks] == [
        "webhook.put",
        "webhook.put",
        "webhook.pause",
        "webhook.delete",
    ]
    assert hooks[0]["after"]["auth"] == {"type": "bearer", "token": "***"}
    assert hooks[1]["after"]["changed"] == ["auth"]
    assert hooks[2]["after"]["paused"] and not hooks[2]["before"]["paused"]
    imports = trail(api, action="definitions.import")
    assert [one["result"] for one in imports][-3:] == ["done", "begun", "bad_request"]
    assert of(api, live)[0]["before"] == {"user": "guest", "vhost": "/"}
    assert {one["action"] for one in trail(api, action="token")} == {"token.issue", "token.revoke"}
    text = json.dumps(trail(api))
    assert "canary" not in text and secret not in text and token not in text


def test_refused_logins_of_every_protocol_are_noted(gateway: Gateway, api: Api, unique: str) -> None:
    ports = gateway.ports
    credentials = pika.PlainCredentials(unique, "canary-wrong")
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", ports["amqp"], credentials=credentials)
        )
    answered = threading.Event()
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    mqtt.username_pw_set(unique, "canary-wrong")
    mqtt.on_connect = lambda *_: answered.set()
    mqtt.connect("127.0.0.1", ports["mqtt"])
    mqtt.loop_start()
    assert answered.wait(60)
    mqtt.disconnect()
    mqtt.loop_stop()
    for port in (ports["http"], ports["management"]):
        answer = httpx.get(f"http://127.0.0.1:{port}/api/overview", auth=(unique, "canary-wrong"), timeout=60)
        assert answer.status_code in (401, 404)
    with pytest.raises(LoginRefused):
        connect(f"penstock://{unique}:canary-wrong@127.0.0.1:{ports['native']}")
    found = [one for one in trail(api, action="login") if one["user"] == unique]
    assert {one["protocol"] for one in found} == {"amqp", "mqtt", "http", "native"}
    assert all(one["result"] == "refused" and "127.0.0.1" in one["peer"] for one in found)
    assert {one["detail"] for one in found} == {"credentials"}
    assert "canary" not in json.dumps(trail(api))


def test_auditors_read_it_and_others_do_not(gateway: Gateway, api: Api, unique: str) -> None:
    for name, tags in (("auditor", "auditor"), ("manager", "management,monitoring,policymaker")):
        user = f"{unique}-{name}"
        assert api.status("PUT", f"users/{user}", {"password": "p", "tags": tags}) == 201
        rights = {"configure": "", "write": "", "read": ""}
        assert api.status("PUT", f"permissions/%2F/{user}", rights) == 201
    auditor, manager = (Api(gateway, f"{unique}-{name}", "p") for name in ("auditor", "manager"))
    assert trail(auditor, user="guest") and auditor.get("audit/verify")[0]["whole"]
    for path in ("users", "overview", "queues"):
        assert auditor.status("GET", path) == 401, "the trail and nothing else"
    assert auditor.get("whoami") == {
        "name": f"{unique}-auditor",
        "tags": ["auditor"],
        "is_internal_user": True,
    }
    assert manager.status("GET", "audit") == manager.status("GET", "audit/verify") == 401
    page = auditor.get("audit?page=1&page_size=2&columns=seq,action")
    assert len(page["items"]) == 2 and page["items"][0].keys() == {"seq", "action"}
    assert auditor.status("GET", "audit?from=yesterday") == 400
    tail = f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/tail?events=audit"
    refused = httpx.get(tail, auth=(f"{unique}-manager", "p"), timeout=60)
    assert (refused.status_code, refused.json()["code"]) == (403, "access_refused")
    with httpx.stream("GET", tail, auth=(f"{unique}-auditor", "p"), timeout=60) as heard:
        lines = heard.iter_lines()
        next(lines)
        assert api.status("DELETE", f"users/{unique}-manager") == 204
        data = next(line for line in lines if line.startswith("data: "))
    entry = json.loads(data[6:])
    assert (entry["action"], entry["target"]) == ("user.delete", {"user": f"{unique}-manager"})
    auditor.close()
    manager.close()


def test_the_command_shows_and_verifies_it(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    shown = command(gateway, "list", "--action", "vhost", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)[-1]["target"] == {"vhost": unique}
    verified = command(gateway, "verify", "-o", "json")
    (verdict,) = json.loads(verified.stdout)
    assert verified.returncode == 0 and verdict["whole"] and verdict["broken"] == ""
    last = f"{verdict['last']}:{verdict['hash']}"
    assert command(gateway, "verify", "--expect", last).returncode == 0
    wrong = command(gateway, "verify", "--expect", f"{verdict['last']}:{'0' * 64}")
    assert wrong.returncode == 1 and "has another hash" in wrong.stderr


def test_it_is_whole_after_kill_9_and_never_behind_what_was_answered(tmp_path: Path, unique: str) -> None:
    """While users are made all the time: each that was answered has its entry, and none is without one."""
    with Gateway(tmp_path, settings=LOCAL) as gateway:
        for round_ in range(2):
            api = Api(gateway)
            made: list[str] = []
            enough = threading.Event()

            def make(
                api: Api = api, made: list[str] = made, enough: threading.Event = enough, round_: int = round_
            ) -> None:
                try:
                    while True:
                        name = f"{unique}-{round_}-{len(made)}"
                        assert api.status("PUT", f"users/{name}", {"password_hash": "", "tags": ""}) == 201
                        made.append(name)
                        if len(made) == 20:
                            enough.set()
                except httpx.HTTPError:
                    return

            worker = threading.Thread(target=make)
            worker.start()
            assert enough.wait(60)
            gateway.kill9()
            worker.join(60)
            api.close()
            gateway.start()
            api = Api(gateway)
            noted = {one["target"]["user"] for one in trail(api, action="user.put", result="done")}
            there = {one["name"] for one in api.get("users")} - {"guest"}
            assert set(made) <= noted and there == noted
            assert api.get("audit/verify")[0]["whole"]
            api.close()


def test_nothing_is_noted_when_it_is_off(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={**LOCAL, "audit.enabled": "false"}) as gateway:
        api = Api(gateway)
        assert api.status("PUT", "vhosts/v") == 201
        assert trail(api) == [] and api.get("audit/verify")[0]["whole"]
        api.close()
