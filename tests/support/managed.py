"""One thing of each kind that the management API shows, on a gateway; and the names of each in its paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pika

from penstock import sync
from tests.support.brokers import Gateway
from tests.support.data_plane import until
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api
from tests.support.mqtt_devices import Device

__all__ = ["ALL_SETTINGS", "all_kinds", "places"]

_BRIDGE = '[{name = "plant", address = "127.0.0.1:9", topics = ["sensors/# out 1"]}]'
ALL_SETTINGS = {
    **SETTINGS,
    "http.listen": "127.0.0.1:0",
    "native.listen": "127.0.0.1:0",
    "links.bridges": _BRIDGE,
    "webhooks.allow_networks": "127.0.0.0/8",
}
"""Settings of a gateway on which `all_kinds` can be made."""
_DEFINED = (
    ("queues/%2F/dead", {"durable": True}),
    ("queues/%2F/s", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
    ("exchanges/%2F/orders", {"type": "topic", "durable": True}),
    ("users/ann", {"tags": "management", "password": "x"}),
    ("user-limits/ann/max-connections", {"value": 5}),
    ("permissions/%2F/ann", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("topic-permissions/%2F/ann", {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
    ("vhost-limits/%2F/max-queues", {"value": 500}),
    ("policies/%2F/p", {"pattern": "^work", "definition": {"message-ttl": 100000}, "apply-to": "queues"}),
    (
        "operator-policies/%2F/p",
        {"pattern": "^work", "definition": {"max-length": 1000}, "apply-to": "queues"},
    ),
    ("global-parameters/g", {"value": {"a": 1}}),
)


@contextmanager
def all_kinds(gateway: Gateway, api: Api) -> Iterator[None]:
    """Make one of each; connections stay as long as the context."""

    def put(path: str, body: Any, method: str = "PUT") -> None:
        answer = api.send(method, path, body)
        assert answer.status_code < 300, (path, answer.text)

    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    put("queues/%2F/work", {"durable": True, "arguments": {"x-queue-type": "quorum", **dead}})
    for path, body in _DEFINED:
        put(path, body)
    put("bindings/%2F/e/orders/q/work", {"routing_key": "k"}, "POST")
    put("bindings/%2F/e/orders/e/amq.topic", {"routing_key": "k"}, "POST")
    shovel = {"src-uri": "amqp://", "src-queue": "dead", "dest-uri": "amqp://127.0.0.1:1", "dest-queue": "q2"}
    put("parameters/shovel/%2F/sh", {"value": shovel})
    put("parameters/federation-upstream/%2F/up", {"value": {"uri": "amqp://127.0.0.1:1"}})
    federated = {"pattern": "^orders$", "definition": {"federation-upstream": "up"}, "apply-to": "exchanges"}
    put("policies/%2F/federated", federated)
    with (
        httpx.Client(
            base_url=f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/",
            auth=("guest", "guest"),
            timeout=LIMIT_S,
        ) as data,
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection,
        Device(gateway.mqtt_port, "device") as device,
        sync.connect(f"penstock://guest:guest@127.0.0.1:{gateway.ports['native']}"),
    ):
        webhook = {"source": {"queue": "work"}, "url": "https://127.0.0.1:9/", "verify": "none"}
        assert data.put("webhooks/w", json=webhook).is_success
        assert data.put("streams/s/subscriptions/n", json={}).is_success
        half = {"queue": "work", "message": {"value": "x"}, "name": "order"}
        assert data.post("half", json=half).is_success
        assert data.post("transactions", json={"timeout_ms": 900_000}).is_success
        assert data.post("producers", json={"name": "till"}).is_success
        channel = connection.channel()
        channel.confirm_delivery()
        for key in ("work", "dead", "s"):
            channel.basic_publish("", key, b"x", pika.BasicProperties(headers={"a": 1}))
        channel.basic_qos(prefetch_count=10)
        channel.basic_consume("s", lambda *_: None, arguments={"x-stream-offset": "first"})
        device.subscribe("a/#", 1)
        device.publish("r/t", "x", 1, retain=True)
        channel.basic_consume("work", lambda *_: None)
        until(lambda: len(api.get("consumers")) == 3 and api.get("federation-links"))
        yield


def places(api: Api, path: str) -> dict[str, str]:
    """A path's names, of the things that `all_kinds` made."""
    names = {
        "vhost": "%2F",
        "name": "work",
        "source": "orders",
        "destination": "amq.topic" if "/e/{destination}" in path else "work",
        "props": "k",
        "user": "ann",
        "limit": "max-queues",
        "component": "shovel",
        "password": "p%C3%A4ss",
        "node": quote(api.get("overview")["node"]),
        "within": "1",
        "unit": "weeks",
        "port": str(api.port),
        "protocol": "amqp",
    }
    named = {
        "/api/connections": "connections",
        "/api/channels": "channels",
        "/api/exchanges": "orders",
        "/api/policies": "p",
        "/api/operator-policies": "p",
        "/api/global-parameters": "g",
        "/api/parameters": "sh",
        "/api/shovels": "sh",
        "/api/bridges": "plant",
        "/api/webhooks": "w",
    }
    for begins, name in named.items():
        if path.startswith(f"{begins}/"):
            names["name"] = name
            if name in ("connections", "channels"):
                found = next(one for one in api.get(name) if "AMQP" in one.get("protocol", "AMQP"))
                names["name"] = quote(found["name"], safe="")
    return names
