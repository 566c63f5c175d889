"""Definitions carry sessions of MQTT clients and webhooks: out of one gateway and into another, over the API
and at a start."""

from __future__ import annotations

import json
import queue as queue_module
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.brokers import ROOT, BrokerFailed, Gateway
from tests.support.data_plane import until
from tests.support.hooks import LOCAL, Hooks, check_hmac
from tests.support.limits import LIMIT_S
from tests.support.management import Api
from tests.support.receiver import Receiver

pytestmark = pytest.mark.penstock_only("this is about penstock's own definitions")


class Device:
    """A client of MQTT 5 whose session stays for a day."""

    def __init__(self, gateway: Gateway) -> None:
        self.got: queue_module.Queue[paho.MQTTMessage] = queue_module.Queue()
        self.granted: queue_module.Queue[object] = queue_module.Queue()
        self.present: queue_module.Queue[bool] = queue_module.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, "dév", protocol=paho.MQTTv5)
        self.client.username_pw_set("guest", "guest")
        self.client.on_message = lambda _, __, message: self.got.put(message)
        self.client.on_subscribe = lambda *_: self.granted.put(None)
        self.client.on_connect = lambda _, __, flags, *___: self.present.put(flags.session_present)
        stays = Properties(PacketTypes.CONNECT)
        stays.SessionExpiryInterval = 86_400
        self.client.connect("127.0.0.1", gateway.mqtt_port, clean_start=False, properties=stays)
        self.client.loop_start()

    def subscribe(self, topic: str, identifier: int, **options: Any) -> None:
        numbered = Properties(PacketTypes.SUBSCRIBE)
        numbered.SubscriptionIdentifier = identifier
        self.client.subscribe(topic, options=SubscribeOptions(**options), properties=numbered)
        self.granted.get(timeout=LIMIT_S)


@contextmanager
def connected(gateway: Gateway) -> Iterator[Device]:
    device = Device(gateway)
    try:
        yield device
    finally:
        device.client.disconnect()
        device.client.loop_stop()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("old"), settings=LOCAL) as running:
        yield running


@pytest.fixture(scope="module")
def exported(old: Gateway) -> Iterator[tuple[dict[str, Any], Receiver, str]]:
    """Definitions with a session, a shared subscription and webhooks; who receives; the secret."""
    with Receiver() as receiver:
        whole, secret = export(old, receiver)
        yield whole, receiver, secret


def export(old: Gateway, receiver: Receiver) -> tuple[dict[str, Any], str]:
    """Make all that, and export it."""
    with connected(old) as device:
        assert device.present.get(timeout=LIMIT_S) is False
        device.subscribe("a/+", 7, qos=1, noLocal=True, retainAsPublished=True)
        device.subscribe("b/#", 8, qos=2)
        device.subscribe("$share/g/c", 9, qos=1)
    hooks = Hooks(old)
    hooks.queue("orders")
    made = hooks.put("of-queue", source={"queue": "orders"}, url=receiver.url, headers={"X-Key": "k"})
    hooks.put("of-topic", source={"topic": "b/#"}, url=receiver.url)
    hooks.close()
    with closing(Api(old)) as api:
        until(lambda: all(one["granted_ms"] for one in api.get("definitions")["webhooks"]))  # both were asked
        return api.get("definitions"), made["secret"]


def works(gateway: Gateway, receiver: Receiver, secret: str) -> None:
    """The client finds its session with what came meanwhile, and the webhooks send."""
    hooks = Hooks(gateway)
    other = paho.Client(paho.CallbackAPIVersion.VERSION2, "", protocol=paho.MQTTv5)
    other.username_pw_set("guest", "guest")
    other.connect("127.0.0.1", gateway.mqtt_port)
    other.loop_start()
    try:
        for topic in ("a/1", "b/2/3", "c", "d"):
            other.publish(topic, topic.encode(), qos=2).wait_for_publish(LIMIT_S)
        before = len(receiver.got)
        hooks.publish("orders", "one")
        ends = time.monotonic() + LIMIT_S
        while not [one for one in receiver.got[before:] if one.body == b"one"]:
            assert time.monotonic() < ends
            time.sleep(0.005)
    finally:
        other.disconnect()
        other.loop_stop()
        hooks.close()
    (order,) = [one for one in receiver.got[before:] if one.body == b"one"]
    check_hmac(order, secret)
    assert order.headers["x-key"] == "k"
    with connected(gateway) as device:
        assert device.present.get(timeout=LIMIT_S) is True
        got = [device.got.get(timeout=LIMIT_S) for _ in range(3)]
        numbers = {message.topic: message.properties.SubscriptionIdentifier for message in got}
        assert numbers == {"a/1": [7], "b/2/3": [8], "c": [9]}
        device.client.publish("a/own", b"", qos=1).wait_for_publish(LIMIT_S)
        device.client.publish("b/own", b"", qos=1).wait_for_publish(LIMIT_S)
        assert device.got.get(timeout=LIMIT_S).topic == "b/own", "no-local is kept"


def test_a_session_and_webhooks_are_all_there(exported: tuple[dict[str, Any], Receiver, str]) -> None:
    whole, _, _ = exported
    (session,) = whole["mqtt_sessions"]
    assert (session["vhost"], session["client_id"], session["user"]) == ("/", "dév", "guest")
    assert session["expiry_s"] == 86_400
    plain = {"no_local": False, "retain_as_published": False, "retain_handling": 0}
    assert session["subscriptions"] == [
        {"filter": "$share/g/c", "qos": 1, **plain, "identifier": 9},
        {"filter": "a/+", "qos": 1, **plain, "no_local": True, "retain_as_published": True, "identifier": 7},
        {"filter": "b/#", "qos": 2, **plain, "identifier": 8},
    ]
    assert [one["name"] for one in whole["webhooks"]] == ["of-queue", "of-topic"]
    assert not [one for one in whole["queues"] if one["name"].startswith("mqtt-subscription")]


def test_they_work_where_they_are_imported(
    exported: tuple[dict[str, Any], Receiver, str], tmp_path: Path
) -> None:
    """Twice the same is fine; after a restart all is there, and what is exported is what was imported."""
    whole, receiver, secret = exported
    gateway = Gateway(tmp_path, settings=LOCAL)
    with gateway:
        api = Api(gateway)
        new = api.send("POST", "definitions-dry-run", whole).json()
        assert [one["client_id"] for one in new["create"]["mqtt_sessions"]] == ["dév"]
        assert [one["name"] for one in new["create"]["webhooks"]] == ["of-queue", "of-topic"]
        assert api.get("definitions")["queues"] == []
        for _ in range(2):
            answer = api.send("POST", "definitions", whole)
            assert answer.status_code == 204, answer.text
        same = api.send("POST", "definitions-dry-run", {**whole, "x-more": 1}).json()
        assert same == {"create": {}, "change": {}, "conflict": {}, "kept": {}, "unknown": ["x-more"]}
        api.close()
        gateway.restart()
        works(gateway, receiver, secret)
        api = Api(gateway)
        again = api.get("definitions")
        for part in ("mqtt_sessions", "webhooks", "queues", "bindings", "exchanges", "users", "permissions"):
            assert again[part] == whole[part], part
        session, hook = dict(whole["mqtt_sessions"][0]), dict(whole["webhooks"][0])
        for part, item, told in (
            ("mqtt_sessions", {**session, "client_id": "x", "user": "nobody"}, "there is no user 'nobody'"),
            ("mqtt_sessions", {**session, "client_id": "x", "expiry_s": "1"}, "expiry_s is a number"),
            ("mqtt_sessions", {**session, "client_id": "x", "vhost": "nope"}, "vhost 'nope' does not exist"),
            (
                "mqtt_sessions",
                {**session, "client_id": "x", "subscriptions": [{"filter": "a/#/b", "qos": 0}]},
                "a/#/b",
            ),
            ("webhooks", {**hook, "name": "x", "settings": {**hook["settings"], "url": "ftp://x"}}, "url"),
            ("webhooks", {"vhost": "/", "name": "y"}, "no webhook"),
        ):
            answer = api.send("POST", "definitions", {part: [item]})
            assert answer.status_code == 400, (item, answer.text)
            assert told in answer.json()["reason"], answer.text
        assert len(api.get("definitions")["mqtt_sessions"]) == 1
        assert len(api.get("definitions")["webhooks"]) == 2
        api.close()


def test_they_work_where_they_are_loaded_at_the_start(
    exported: tuple[dict[str, Any], Receiver, str], tmp_path: Path
) -> None:
    whole, receiver, secret = exported
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(whole))
    settings = {**LOCAL, "management.load_definitions": str(file)}
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        works(gateway, receiver, secret)
    whole = {**whole, "mqtt_sessions": [{**whole["mqtt_sessions"][0], "client_id": "x", "user": "nobody"}]}
    file.write_text(json.dumps(whole))
    with pytest.raises(BrokerFailed, match="there is no user 'nobody'"):
        Gateway(tmp_path / "wrong", settings=settings).start()


def test_an_export_of_rabbitmq_is_imported_whole(old: Gateway) -> None:
    """One of its 3.10: it writes tables of operator policies and of limits as lists of pairs."""
    api, alice = Api(old), Api(old, "alice", "s3cret")
    try:
        export = json.loads((ROOT / "tests/golden/rabbitmq-definitions.json").read_text())
        wrong = {"definition": [["max-length", "many"]], "pattern": "", "apply-to": "all", "priority": 0}
        parameters = {"component": "operator_policy", "name": "cap", "vhost": "prod", "value": wrong}
        refused = api.send("POST", "definitions", {**export, "parameters": [parameters]})
        assert refused.status_code == 400 and "parameters: 'cap'" in refused.text
        assert api.status("GET", "vhosts/prod") == 404, "nothing is changed when something cannot be"
        assert api.send("POST", "definitions", export).status_code == 204
        (capped,) = api.get("operator-policies/prod")
        assert (capped["name"], capped["definition"]) == ("cap", {"max-length": 10000})
        assert {one["name"] for one in api.get("policies/prod")} == {"fed", "ttl"}
        (limits,) = api.get("vhost-limits/prod")
        assert limits["value"] == {"max-connections": 100, "max-queues": 50}
        assert {one["name"]: one["type"] for one in api.get("queues/prod")} == {
            one["name"]: one["type"] for one in export["queues"]
        }
        assert api.get("user-limits/app") == [{"user": "app", "value": {"max-connections": 10}}]
        assert alice.get("whoami")["tags"] == ["administrator", "monitoring"]
    finally:
        alice.close()
        api.close()


def test_a_session_of_rabbitmqs_is_left_out(old: Gateway, hooks_of: Callable[[Gateway], Hooks]) -> None:
    """As RabbitMQ exports it, it would be a queue that nobody takes from."""
    name = "mqtt-subscription-mqtt-explorerqos1"
    body = {
        "queues": [{"vhost": "/", "name": name, "durable": True, "auto_delete": False, "arguments": {}}],
        "bindings": [
            {
                "source": "amq.topic",
                "vhost": "/",
                "destination": name,
                "destination_type": "queue",
                "routing_key": "t.#",
                "arguments": {},
            }
        ],
    }
    api = Api(old)
    try:
        assert api.send("POST", "definitions", body).status_code == 204
        assert api.status("GET", f"queues/%2F/{name}") == 404
    finally:
        api.close()
    assert "the session of an MQTT client is left out" in old.log_text()
