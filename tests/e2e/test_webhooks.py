"""Webhooks against a real receiver that answers, fails, is slow, redirects, is killed and comes back."""

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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.support.brokers import ROOT, BrokerFailed, Gateway, free_port
from tests.support.management import SETTINGS, Api
from tests.support.receiver import Got, Receiver, Reply

pytestmark = pytest.mark.penstock_only("webhooks are penstock's own")

LOCAL = {**SETTINGS, "http.listen": "127.0.0.1:0", "webhooks.allow_networks": "127.0.0.0/8"}
FAST = {"schedule_ms": [20, 20, 20, 20, 20], "max_age_ms": 600_000, "refused_attempts": 3}


class Hooks:
    """Requests to the data plane of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/",
            auth=("guest", "guest"),
            timeout=60,
        )
        self._api = Api(gateway)

    def close(self) -> None:
        self.client.close()
        self._api.close()

    def queue(self, name: str, **arguments: Any) -> str:
        assert self._api.status("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments}) == 201
        return name

    def put(self, name: str, **settings: Any) -> dict[str, Any]:
        settings.setdefault("retry", FAST)
        settings.setdefault("format", "raw")
        settings.setdefault("timeout_ms", 120_000)
        answer = self.client.put(f"webhooks/{name}", json=settings)
        assert answer.status_code in (200, 201), answer.text
        made: dict[str, Any] = answer.json()
        return made

    def publish(self, queue: str, *values: str, **fields: Any) -> None:
        messages = [{"value": value, **fields} for value in values]
        answer = self.client.post(f"queues/{queue}/messages", json={"messages": messages})
        assert answer.status_code == 200, answer.text

    def post(self, path: str, body: object = None) -> httpx.Response:
        return self.client.post(path, json=body) if body is not None else self.client.post(path)

    def show(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.get(f"webhooks/{name}").json()
        return shown

    def wait(self, name: str, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 60) -> Any:
        """Wait until what is shown of a webhook meets a condition."""
        deadline = time.monotonic() + timeout_s
        while not condition(shown := self.show(name)):
            assert time.monotonic() < deadline, shown
            time.sleep(0.02)
        return shown

    def attempts(self, name: str, count: int) -> list[dict[str, Any]]:
        """The delivery log, which has so many entries in a while."""
        deadline = time.monotonic() + 60
        while True:
            read = self.client.get(f"webhooks/{name}/attempts", params={"max": 1000}).json()
            if len(read["messages"]) >= count:
                return [json.loads(message["value"]) for message in read["messages"]]
            assert time.monotonic() < deadline, read
            time.sleep(0.02)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("webhooks"), settings=LOCAL) as running:
        yield running


@pytest.fixture
def hooks_of() -> Iterator[Callable[[Gateway], Hooks]]:
    """Makes clients, and closes them."""
    made: list[Hooks] = []

    def make(gateway: Gateway) -> Hooks:
        made.append(Hooks(gateway))
        return made[-1]

    yield make
    for hooks in made:
        hooks.close()


@pytest.fixture
def hooks(gateway: Gateway, hooks_of: Callable[[Gateway], Hooks]) -> Hooks:
    return hooks_of(gateway)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def bodies(got: list[Got]) -> list[str]:
    return [one.body.decode() for one in got]


def test_a_queue_is_pushed_signed_after_the_handshake(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.queue(unique)
    made = hooks.put(unique, source={"queue": unique}, url=receiver.url, headers={"X-Token": "abc"})
    assert made["headers"] == {"x-token": "***"}
    hooks.publish(unique, "one", message_id="m-1", headers={"shop": "north"})
    (got,) = receiver.wait_count(1)
    assert receiver.options[0].headers["webhook-request-origin"]
    assert (got.body, got.headers["webhook-id"], got.headers["x-token"]) == (b"one", "m-1", "abc")
    assert got.headers["penstock-header-shop"] == "north"
    assert got.headers["penstock-attempt"] == "1"
    check_hmac(got, made["secret"])
    hooks.wait(unique, lambda shown: shown["delivered"] == 1 and shown["backlog"] == 0)
    (attempt,) = hooks.attempts(unique, 1)
    assert (attempt["status"], attempt["result"], attempt["ids"]) == (200, "done", ["m-1"])
    assert made["secret"] not in hooks.client.get("webhooks").text


def check_hmac(got: Got, secret: str) -> None:
    """As a receiver written by the specification would."""
    import hashlib
    import hmac

    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert expected in got.headers["webhook-signature"].split(" ")


def test_two_secrets_sign_while_one_replaces_the_other(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.queue(unique)
    old = hooks.put(unique, source={"queue": unique}, url=receiver.url)["secret"]
    new = hooks.post(f"webhooks/{unique}/rotate-secret", {}).json()["secret"]
    hooks.publish(unique, "both")
    got = receiver.wait_count(1)[0]
    check_hmac(got, old)
    check_hmac(got, new)
    rotated = hooks.post(f"webhooks/{unique}/rotate-secret", {"overlap_ms": 0, "signing": "ed25519"}).json()
    hooks.publish(unique, "asymmetric")
    got = receiver.wait_count(2)[1]
    version, _, value = got.headers["webhook-signature"].partition(",")
    assert version == "v1a" and " " not in value
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(rotated["public_key"].removeprefix("whpk_")))
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key.verify(base64.b64decode(value), signed)


def test_nothing_is_sent_to_a_receiver_that_does_not_agree(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    receiver.grants = False
    hooks.queue(unique)
    hooks.publish(unique, "waits")
    hooks.put(unique, source={"queue": unique}, url=receiver.url)
    shown = hooks.wait(unique, lambda shown: "OPTIONS" in shown["last_error"])
    assert shown["state"] == "pending" and not receiver.got
    receiver.grants = True
    receiver.wait_count(1)
    hooks.wait(unique, lambda shown: shown["state"] == "active" and shown["delivered"] == 1)


def test_the_handshake_is_run_again_by_hand(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    receiver.grants = False
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url)
    verify = f"webhooks/{unique}/verify"
    said = hooks.post(verify).json()
    assert (said["allowed"], said["state"]) == (False, "pending") and "405" in said["reason"]
    receiver.grants = True
    said = hooks.post(verify).json()
    assert said["allowed"] and said["granted_at"] > 0
    hooks.publish(unique, "one")
    receiver.wait_count(1)
    receiver.grants = False
    assert hooks.post(verify).json()["state"] == "disabled", "who says no is sent nothing more"
    receiver.grants = True
    assert hooks.post(verify).json()["allowed"]
    assert hooks.post(f"webhooks/{unique}/resume").json()["state"] == "active"
    hooks.put(unique, source={"queue": unique}, url=f"http://127.0.0.1:{free_port()}/")
    nobody = hooks.post(verify).json()
    assert not nobody["allowed"] and "no answer" in nobody["reason"]
    hooks.put(unique, source={"queue": unique}, url=receiver.url, verify="none")
    refused = hooks.post(verify)
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_mode")


@pytest.mark.parametrize("kind", ["shared", "exclusive", "failover", "key_shared"])
def test_a_webhook_consumes_a_subscription(hooks: Hooks, receiver: Receiver, unique: str, kind: str) -> None:
    """With its place, its kind and its seeks; others may consume it, too, as far as the kind allows."""
    hooks.client.put(f"streams/{unique}")
    path = f"streams/{unique}/subscriptions/s"
    assert hooks.client.put(path, json={"kind": kind, "start": "earliest"}).status_code == 201
    source = {"stream": unique, "subscription": "s"}
    made = hooks.put(unique, source=source, url=receiver.url, ordering="strict")
    assert made["source"] == source
    for key in "abab":
        hooks.publish(unique, key, key=key)
    assert bodies(receiver.wait_count(4)) == list("abab")
    hooks.wait(unique, lambda shown: shown["delivered"] == 4 and shown["backlog"] == 0)
    if kind == "exclusive":
        busy = hooks.post(f"{path}/pull", {"consumer": "other"})
        assert (busy.status_code, busy.json()["code"]) == (409, "subscription_busy")
    assert hooks.post(f"{path}/seek", {"to": "earliest"}).status_code == 200
    assert bodies(receiver.wait_count(8)[4:]) == list("abab")
    hooks.wait(unique, lambda shown: shown["delivered"] == 8 and shown["held"] == 0)
    assert hooks.client.delete(path).status_code == 204
    hooks.wait(unique, lambda shown: shown["state"] == "disabled" and "gone" in shown["reason"])
    none = hooks.client.put(f"webhooks/{unique}-2", json={"source": source, "url": receiver.url})
    assert (none.status_code, none.json()["code"]) == (404, "not_found")


def test_what_fails_is_sent_again_and_what_is_refused_becomes_a_dead_letter(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    tries: dict[bytes, int] = {}
    garbage = Reply(raw=b"\x16\x03\x01 this is no HTTP\r\n\r\n")

    def reply(got: Got) -> Reply:
        n = tries[got.body] = tries.get(got.body, 0) + 1
        failing = {
            b"busy": Reply(503),
            b"broken": Reply(500),
            b"garbage": garbage,
            b"moved": Reply(302, {"location": "http://127.0.0.1:1/secret"}),
        }
        if got.body == b"refused":
            return Reply(400, body=b"never")
        return failing[got.body] if n < 3 and got.body in failing else Reply(202)

    receiver.reply = reply
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url)
    for value in ("busy", "broken", "garbage", "moved", "refused", "fine"):
        hooks.publish(unique, value)
    shown = hooks.wait(unique, lambda shown: shown["delivered"] == 5 and shown["dead"] == 1)
    assert tries == {b"busy": 3, b"broken": 3, b"garbage": 3, b"moved": 3, b"refused": 3, b"fine": 1}
    assert shown["backlog"] == shown["held"] == 0
    results = {(one["status"], one["result"]) for one in hooks.attempts(unique, 16)}
    assert results == {
        (503, "throttled"), (500, "failed"), (0, "failed"), (302, "failed"), (400, "refused"), (202, "done"),
    }  # fmt: skip
    # The receiver learns: what is redriven keeps its id.
    first_id = next(got.headers["webhook-id"] for got in receiver.got if got.body == b"refused")
    receiver.reply = lambda got: Reply()
    assert hooks.post(f"webhooks/{unique}/redrive", {}).json() == {"messages": 1}
    hooks.wait(unique, lambda shown: shown["delivered"] == 6 and shown["dead"] == 0)
    last = receiver.got[-1]
    assert (last.body, last.headers["webhook-id"]) == (b"refused", first_id)


def test_retry_after_rests_the_webhook(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    answers = iter([Reply(429, {"retry-after": "1"})])
    times: list[float] = []

    def reply(got: Got) -> Reply:
        times.append(time.monotonic())
        return next(answers, Reply())

    receiver.reply = reply
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url)
    hooks.publish(unique, "later")
    receiver.wait_count(2)
    assert times[1] - times[0] >= 0.99  # never sooner than it asked for
    hooks.wait(unique, lambda shown: shown["delivered"] == 1)


def test_410_switches_it_off_and_nothing_is_lost(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    receiver.reply = lambda got: Reply(410)
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url, ordering="strict")
    hooks.publish(unique, "one", "two")
    shown = hooks.wait(unique, lambda shown: shown["state"] == "disabled")
    assert "410" in shown["reason"] and len(receiver.got) == 1
    assert shown["backlog"] == 2
    receiver.reply = lambda got: Reply()
    assert hooks.post(f"webhooks/{unique}/resume").status_code == 200
    assert bodies(receiver.wait_count(3)) == ["one", "one", "two"]


def test_order_is_kept_for_each_key_while_requests_fail(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    failed: set[bytes] = set()
    lock = threading.Lock()

    def reply(got: Got) -> Reply:
        with lock:
            if got.body.endswith(b"0") and got.body not in failed:
                failed.add(got.body)
                return Reply(500)
        return Reply()

    receiver.reply = reply
    hooks.put(
        unique,
        source={"exchange": "amq.topic", "routing_key": f"{unique}.#"},
        url=receiver.url,
        ordering="key",
    )
    keys = [f"{unique}.k{n}" for n in range(5)]
    for at in range(40):
        messages = [{"value": f"{key} {at}", "routing_key": key} for key in keys]
        answer = hooks.client.post("exchanges/amq.topic/messages", json={"messages": messages})
        assert answer.status_code == 200
    hooks.wait(unique, lambda shown: shown["delivered"] == 200)
    for key in keys:
        numbers = [int(one.split()[1]) for one in bodies(receiver.got) if one.startswith(f"{key} ")]
        # Without the repeated ones, in order; a repeated one comes before anything behind it.
        assert list(dict.fromkeys(numbers)) == list(range(40))
        assert numbers == sorted(numbers)


def test_batches_are_settled_one_by_one(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.queue(unique)
    hooks.publish(unique, *(str(n) for n in range(50)))
    seen: dict[str, int] = {}

    def reply(got: Got) -> Reply:
        events = json.loads(got.body)
        results = []
        for event in events:
            n = seen[event["data"]] = seen.get(event["data"], 0) + 1
            again = event["data"] == "7" and n == 1
            results.append({"id": event["id"], "status": "retry" if again else "ack"})
        return Reply(200, body=json.dumps({"results": results}).encode())

    receiver.reply = reply
    hooks.put(
        unique,
        source={"queue": unique},
        url=receiver.url,
        format="cloudevents-batch",
        ordering="strict",
        batch={"max_messages": 20, "linger_ms": 0},
    )
    hooks.wait(unique, lambda shown: shown["delivered"] == 50)
    assert seen == {**{str(n): 1 for n in range(50)}, "7": 2}
    first = json.loads(receiver.got[0].body)
    assert receiver.got[0].headers["content-type"].startswith("application/cloudevents-batch+json")
    assert first[0]["specversion"] == "1.0" and first[0]["datacontenttype"] == "text/plain"


def test_an_mqtt_topic_comes_as_a_binary_cloudevent(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.put(unique, source={"topic": f"{unique}/+/temp"}, url=receiver.url, format="cloudevents-binary")
    hooks.wait(unique, lambda shown: shown["state"] == "active")
    event = {"specversion": "1.0", "id": "e1", "source": "/süd", "type": "t", "data": {"c": 21}}
    answer = hooks.client.post(
        f"exchanges/amq.topic/messages?routing_key={unique}.a.temp",
        content=json.dumps(event),
        headers={"content-type": "application/cloudevents+json"},
    )
    assert answer.status_code == 200
    got = receiver.wait_count(1)[0]
    assert json.loads(got.body) == {"c": 21}
    assert (got.headers["ce-id"], got.headers["ce-source"]) == ("e1", "/s%C3%BCd")
    assert got.headers["content-type"] == "application/json"


def test_every_message_of_a_stream_is_pushed_and_a_range_is_replayed(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    hooks.queue(unique, **{"x-queue-type": "stream"})
    hooks.publish(unique, *"abcdef")
    hooks.put(unique, source={"stream": unique, "from": "first"}, url=receiver.url, ordering="strict")
    assert bodies(receiver.wait_count(6)) == list("abcdef")
    hooks.wait(unique, lambda shown: shown["delivered"] == 6)
    positions = [one["positions"][0] for one in hooks.attempts(unique, 6)]
    answer = hooks.post(
        f"webhooks/{unique}/replay", {"from": f"pos:{positions[2]}", "to": f"pos:{positions[4]}"}
    )
    assert answer.status_code == 202, answer.text
    assert bodies(receiver.wait_count(9))[6:] == ["c", "d", "e"]
    hooks.publish(unique, "g")
    assert bodies(receiver.wait_count(10))[9:] == ["g"]


def test_what_a_queue_had_is_replayed(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url, ordering="strict")
    hooks.publish(unique, *"abcd")
    receiver.wait_count(4)
    hooks.wait(unique, lambda shown: shown["delivered"] == 4)
    positions = [one["positions"][0] for one in hooks.attempts(unique, 4)]
    body = {"from": f"pos:{positions[1]}", "to": f"pos:{positions[2]}"}
    assert hooks.post(f"webhooks/{unique}/replay", body).status_code == 202
    assert bodies(receiver.wait_count(6))[4:] == ["b", "c"]
    assert [got.headers["webhook-id"] for got in receiver.got[4:]] == [
        got.headers["webhook-id"] for got in receiver.got[1:3]
    ]


def test_a_slow_receiver_holds_no_other_one_up(hooks: Hooks, receiver: Receiver, unique: str) -> None:
    release = threading.Event()
    with Receiver(lambda got: Reply(wait=release)) as slow:
        for name, url in ((f"{unique}s", slow.url), (f"{unique}f", receiver.url)):
            hooks.queue(name)
            hooks.put(name, source={"queue": name}, url=url, timeout_ms=300_000)
            hooks.publish(name, *(str(n) for n in range(200)))
        slow.wait_count(1)
        receiver.wait_count(200)
        assert hooks.show(f"{unique}s")["delivered"] == 0
        release.set()
        hooks.wait(f"{unique}s", lambda shown: shown["delivered"] == 200)


def test_concurrency_follows_the_receiver_and_the_breaker_probes_one_at_a_time(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    down = threading.Event()
    receiver.reply = lambda got: Reply(500) if down.is_set() else Reply()
    hooks.queue(unique)
    retry = {**FAST, "schedule_ms": [20] * 100}
    hooks.put(unique, source={"queue": unique}, url=receiver.url, retry=retry, max_inflight=8)
    hooks.publish(unique, *(str(n) for n in range(100)))
    shown = hooks.wait(unique, lambda shown: shown["delivered"] == 100)
    assert 1 < shown["concurrency"] <= 8
    down.set()
    hooks.publish(unique, "x", "y")
    shown = hooks.wait(unique, lambda shown: shown["state"] == "open")
    assert shown["concurrency"] == 1 and shown["results"]["failed"] >= 10
    down.clear()
    hooks.wait(unique, lambda shown: shown["delivered"] == 102 and shown["state"] == "active")


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
        hooks.queue(unique)
        secret = hooks.put(unique, source={"queue": unique}, url=receiver.url)["secret"]
        hooks.wait(unique, lambda shown: shown["state"] == "active")
        assert hooks.post(f"webhooks/{unique}/pause").json()["state"] == "paused"
        hooks.publish(unique, "kept")
        gateway.restart()
        hooks = hooks_of(gateway)
        assert hooks.show(unique)["state"] == "paused" and not receiver.got
        hooks.post(f"webhooks/{unique}/resume")
        check_hmac(receiver.wait_count(1)[0], secret)
        assert hooks.client.delete(f"webhooks/{unique}").status_code == 204
        assert hooks.client.get(f"webhooks/{unique}").status_code == 404


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

    settings = json.dumps({"source": {"queue": unique}, "url": receiver.url, "format": "raw"})
    assert json.loads(command("set", unique, settings))["secret"].startswith("whsec_")
    hooks.publish(unique, "seen")
    hooks.wait(unique, lambda shown: shown["delivered"] == 1)
    api = Api(gateway)
    assert [item["delivered"] for item in api.get("webhooks/%2F") if item["name"] == unique] == [1]
    assert api.get(f"webhooks/%2F/{unique}")["url"] == receiver.url
    api.close()
    assert unique in command("list")
    assert json.loads(command("show", unique))["state"] == "active"
    assert json.loads(command("test", unique))["status"] == 200
    assert json.loads(command("attempts", unique, "-o", "json"))[0]["status"] == 200
    page = httpx.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics").text
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
            hooks.put(unique, **settings, secret=secret, headers={"x-token": "canary-token"})
            hooks.publish(unique, "one")
            check_hmac(receiver.wait_count(1)[0], secret)
            hooks.wait(unique, lambda shown: shown["delivered"] == 1)
            gateway.restart()
            hooks = hooks_of(gateway)
            hooks.publish(unique, "two")
            got = receiver.wait_count(2)[1]
            check_hmac(got, secret)
            assert got.headers["x-token"] == "canary-token"
        everything = b"".join(path.read_bytes() for path in gateway.folder.rglob("*") if path.is_file())
        assert secret.encode() not in everything and b"canary-token" not in everything
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
