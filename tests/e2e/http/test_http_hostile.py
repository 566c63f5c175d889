"""No request makes the gateway fail: every path there is, with names, queries and bodies of all kinds."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.protocols.amqp.codec.errors import answer
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
from penstock.protocols.http.data.app import DataPlane
from penstock.protocols.http.management.app import add_management
from penstock.protocols.http.management.context import Management
from penstock.protocols.http.server.app import ErrorTexts, HttpApp
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.http.webhooks.delivery.questions import Questions
from penstock.protocols.http.webhooks.options import WebhookOptions
from penstock.protocols.http.webhooks.service import Webhooks
from penstock.protocols.links.links import Links
from penstock.protocols.listening.registry import Registry
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from tests.support.amqp_session import World
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own HTTP")

FIELDS = (
    "tags password password_hash configure write read pattern definition priority apply-to value arguments "
    "durable auto_delete type routing_key properties payload payload_encoding count ackmode encoding "
    "exchange internal messages handles wait_ms max_messages lease_ms users queues bindings vhosts "
    "description metadata default_queue_type action limits headers"
).split()
VALUES: list[Any] = [1, [], {}, None, "x", True, -1, [None], {"a": {}}, 2**70, 1.5, "\ud800"]
WRONG = dict(zip(FIELDS, itertools.cycle(VALUES), strict=False))
BODIES = (
    None,
    b"",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    json.dumps(WRONG).encode(),
    json.dumps({name: [WRONG] for name in WRONG}).encode(),
)
NAMES = ("fuzz", "q", "%C3%A9%20%25", "a" * 300, "..%2F", "%E2%80%AE")
QUERIES = (
    "",
    "?page=1&page_size=2&sort=a.b&columns=a,b.c&name=x",
    "?use_regex=true&name=(((((&page=0",
    "?from=x&wait_ms=x",
)


def paths(folder: Path) -> list[tuple[str, str]]:
    """(method, path) of every route there is."""

    async def listed() -> list[tuple[str, str]]:
        world = World(folder)
        words = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
        app, messages = HttpApp(words), Messages(words)
        options = WebhookOptions()
        webhooks = Webhooks(world.broker, messages, options)
        questions = Questions(world.broker, messages, options.guard(), options.tls)
        registry = Registry()
        links = Links(world.broker, registry, max_links=9, bridges=(), receive_maximum=9, cluster="x")
        plane = DataPlane(app, world.broker, messages, webhooks, questions, registry)
        api = Management(
            app,
            world.broker,
            registry,
            messages,
            webhooks,
            links,
            plane.access,
            plane.staged,
            cluster="x",
            data_dir=folder,
            disk_free_limit=0,
        )
        add_management(api)
        plane.add(app)
        found = app.routes.paths()
        world.close()
        return found

    return asyncio.run(listed())


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "hostile", settings=SETTINGS) as running:
        yield running


def test_no_request_is_an_internal_error(gateway: Gateway, tmp_path: Path) -> None:
    routes = paths(tmp_path / "routes")
    assert len(routes) > 120
    api = Api(gateway)
    api.send("PUT", "vhosts/fuzz")
    api.send("PUT", "queues/fuzz/q", {"durable": True})
    failed = []
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with httpx.Client(auth=("guest", "guest"), timeout=LIMIT_S) as client:
        for at, (method, path) in enumerate(routes):
            if path.endswith(("/tail", "/ws")) or (
                method == "DELETE" and path in ("/api/vhosts/{}", "/api/reset")
            ):
                continue  # endless, or the end of this test's vhost
            for turn, body in enumerate(BODIES):
                names = itertools.cycle(NAMES[(at + turn) % len(NAMES) :] + NAMES)
                filled = "/".join(
                    ("fuzz" if n == 3 and turn % 2 else next(names)) if part == "{}" else part
                    for n, part in enumerate(path.split("/"))
                )
                query = QUERIES[turn % len(QUERIES)]
                answered = client.request(method, base + filled + query, content=body)
                if answered.status_code >= 500 and answered.status_code != 503:
                    failed.append((method, filled + query, body and body[:80], answered.status_code))
    log = gateway.log_text()
    assert (failed, log.count("a request failed")) == ([], 0), log[-3000:]
    api.close()
