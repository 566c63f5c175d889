"""Webhooks against a real receiver that answers, fails, is slow, redirects and refuses."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from penstock.cli import main
from tests.support.brokers import Gateway, free_port
from tests.support.hooks import FAST, LOCAL, Hooks, bodies, check_hmac
from tests.support.receiver import Got, Receiver, Reply

pytestmark = pytest.mark.penstock_only("webhooks are penstock's own")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("webhooks"), settings=LOCAL) as running:
        yield running


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


def test_failed_deliveries_are_retried_and_refused_ones_dead_lettered(
    hooks: Hooks, receiver: Receiver, unique: str, gateway: Gateway, capsys: pytest.CaptureFixture[str]
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
    _commands_show_it(gateway, capsys, unique)
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


def _commands_show_it(gateway: Gateway, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """The queue of its dead letters is listed, and times can be read."""
    url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    assert main(["dlq", "list", "--url", url, "-o", "json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    dead = listed[f"webhook.{name}.dead"]
    assert (dead["messages"], dead["from"]) == (1, f"webhook {name}")
    assert main(["webhooks", "attempts", "--url", url, name, "--columns", "at,status"]) == 0
    _, first, *_ = capsys.readouterr().out.splitlines()
    ago = datetime.now().astimezone() - datetime.fromisoformat(first.rpartition("  ")[0].strip())
    assert timedelta() <= ago < timedelta(minutes=10), first


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


def test_the_history_of_a_queue_is_replayed(hooks: Hooks, receiver: Receiver, unique: str) -> None:
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


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("cloudevents-binary", "application/json"),
        ("cloudevents-structured", "application/cloudevents+json; charset=utf-8"),
        ("cloudevents-batch", "application/cloudevents-batch+json; charset=utf-8"),
        ("json", "application/json"),
        ("raw", "application/json"),
    ],
)
def test_a_test_is_sent_as_a_message_is(
    hooks: Hooks, receiver: Receiver, unique: str, format: str, kind: str
) -> None:
    secret = hooks.put(
        unique, source={"queue": hooks.queue(unique)}, url=receiver.url, format=format, verify="none"
    )["secret"]
    assert hooks.post(f"webhooks/{unique}/test").json()["result"] == "done"
    (got,) = receiver.wait_count(1)
    assert got.headers["content-type"] == kind
    check_hmac(got, secret)
    sent = {"type": "penstock.webhook.test", "webhook": unique}
    whole = json.loads(got.body)
    match format:
        case "cloudevents-binary":
            assert (got.headers["ce-type"], whole) == (sent["type"], sent)
        case "cloudevents-structured":
            assert (whole["type"], whole["data"]) == (sent["type"], sent)
        case "cloudevents-batch":
            assert [one["data"] for one in whole] == [sent]
        case "json":
            assert len(whole) == 1
        case "raw":
            assert whole == sent
    assert hooks.show(unique)["delivered"] == 0, "it is no message of the webhook"
