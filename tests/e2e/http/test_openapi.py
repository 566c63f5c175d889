"""The OpenAPI document is true: it has every path there is, and requests made from it agree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.protocols.http.data.openapi.document import document
from penstock.protocols.http.data.openapi.page import PATHS
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own data plane")

WEBHOOK = {"source": {"queue": "q"}, "url": "https://127.0.0.1:9/", "verify": "none"}
"""Where nobody listens."""
NEEDS_HANDLES = ("ack", "ack-cumulative", "nack", "extend", "replay")
SHAPES = {"bad_field", "bad_request", "malformed", "not_json"}
"""Codes of what the document should have kept a request from."""
EXPLAINED = {
    "page_token: none that a page gave": "As the page before gave it.",
    "a numbered request has messages": "The number of the first message, of which there is one at least.",
    "delay_ms: not in a transaction": "Not in a transaction.",
    "ack: a handle twice": "As a pull gave them, each once.",
    "is the gateway's": "Others than the gateway's own, such as webhook-* and ce-*.",
    "Idempotency-Key: one whose id was lost": "Only beside publish or ack, which happen once then.",
    "(100 years) from now": "within 100 years",
    "an integer of a table has at most 64 bits": "at most 64 bits with their sign, at any depth.",
    "a short string has at most 255 bytes": "Their names have at most 255 bytes.",
    "the property": "At most 255 bytes.",
    "a text of 1 to 255 bytes": "At most 255 bytes.",
    "both as PEM": "certificate and key are PEM.",
    "auth.": "A user has no colon, token_url is https, certificate and key are PEM.",
    "more than one needs a format with many": "More than one: in a format with many.",
    "secret:": "Of HMAC (whsec_) or ed25519 (whsk_), as `signing` says.",
}
"""Refusals that no schema can express, and the words of the document that say so."""
EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "15"))
"""Requests for each operation; `make fuzz-http` sets it."""
NAMES = {
    "vhost": "%2F",
    "queue": "q",
    "exchange": "amq.topic",
    "name": "w",
    "stream": "s",
    "subscription": "n",
    "token": "t",
    "half": "h",
    "delayed": "d",
    "waiting": "1-1",
    "transaction": "none",
    "message": "0:1",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(
        tmp_path_factory.mktemp("openapi"),
        settings={**SETTINGS, "http.listen": "127.0.0.1:0", "webhooks.allow_networks": "127.0.0.0/8"},
    ) as running:
        api = Api(running)
        api.status("PUT", "queues/%2F/q", {"durable": True})
        api.close()
        yield running


@pytest.fixture(scope="module")
def schema(gateway: Gateway) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{gateway.ports['http']}/openapi.json")


def unexplained(answer: Any) -> bool:
    """Whether a request that the document allows was refused for its shape, and the document says no why."""
    if answer.status_code < 400:
        return False
    problem, words = answer.json(), str(document())
    if problem["code"] not in SHAPES:
        return False
    return not any(why in problem["detail"] and said in words for why, said in EXPLAINED.items())


def test_the_document_is_served_without_a_login_and_has_every_path(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['http']}"
    for path in PATHS:
        answer = httpx.get(base + path, timeout=LIMIT_S)
        assert answer.status_code == 200 and answer.json() == document()
    assert httpx.get(f"{base}/v1/vhosts/%2F/webhooks", timeout=LIMIT_S).status_code == 401
    told = {
        (method.upper(), path)
        for path, item in document()["paths"].items()
        for method in item
        if method != "parameters"
    }
    for method, path in told:
        answer = httpx.request(
            method, base + path.format(**{name: "none" for name in NAMES}), timeout=LIMIT_S
        )
        assert answer.status_code == 401, (method, path)
    served = asyncio.run(_routes())
    assert {(method, path) for method, path in served} == {
        (method, _unnamed(path)) for method, path in told
    } | {("GET", path) for path in PATHS}


def _unnamed(path: str) -> str:
    return "/".join("{}" if part.startswith("{") else part for part in path.split("/"))


async def _routes() -> list[tuple[str, str]]:
    import tempfile
    from pathlib import Path

    from penstock.protocols.amqp.codec.errors import answer
    from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
    from penstock.protocols.http.data.app import DataPlane
    from penstock.protocols.http.server.app import ErrorTexts, HttpApp
    from penstock.protocols.http.shared.traffic import Messages
    from penstock.protocols.http.webhooks.delivery.questions import Questions
    from penstock.protocols.http.webhooks.options import WebhookOptions
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.protocols.listening.registry import Registry
    from penstock.protocols.properties.translate import amqp091_from_mqtt5
    from tests.support.amqp_session import World

    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        words = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
        app, messages = HttpApp(words), Messages(words)
        options = WebhookOptions()
        webhooks = Webhooks(world.broker, messages, options)
        questions = Questions(world.broker, messages, options.guard(), options.tls)
        DataPlane(app, world.broker, messages, webhooks, questions, Registry()).add(app)
        found = app.routes.paths()
        world.close()
    return found


@pytest.mark.parametrize(
    ("method", "path"),
    sorted(
        (method.upper(), path)
        for path, item in document()["paths"].items()
        if not path.endswith(("/tail", "/ws", "/mqtt"))  # which do not end
        for method in item
        if method != "parameters"
    ),
)
def test_requests_made_from_the_document_find_what_it_says(
    gateway: Gateway, schema: Any, method: str, path: str
) -> None:
    operation = schema[path][method]
    origin = f"http://127.0.0.1:{gateway.ports['http']}"

    def post(to: str, body: Any = None) -> Any:
        made = client.post(to, json=body)
        assert made.status_code == 201, made.text
        return made.json()

    def make() -> None:
        """Create the objects of the paths again where the request before has deleted them."""
        if method == "DELETE" or not statuses:
            webhook = {**WEBHOOK, "verify": "options"} if path.endswith("/verify") else WEBHOOK
            things: tuple[tuple[str, Any], ...] = (
                ("queues/q", {}),
                ("webhooks/w", webhook),
                ("streams/s", {}),
                ("streams/s/subscriptions/n", {}),
            )
            for what, body in things:
                made = client.put(what, json=body)
                # An existing object that the document's request made may differ.
                assert made.status_code in (200, 201) or made.json()["code"] == "inequivalent", made.text
            client.post("webhooks/w/resume")
        if "/half/" in path:
            post("half", {"name": NAMES["half"], "queue": "q", "message": {"value": "a"}})
        if "/delayed/" in path:
            later = {"value": "x", "routing_key": "k", "delay_ms": 3_600_000, "delay_id": NAMES["delayed"]}
            assert client.post(f"exchanges/{NAMES['exchange']}/messages", json=later).status_code == 200
            NAMES["waiting"] = client.get("delayed").json()["messages"][0]["id"]
        if "/log/messages/" in path:
            published = client.post("queues/q/messages", json={"value": "x"}).json()
            NAMES["message"] = published["results"][0]["id"]
        if "/transactions/" in path or path.endswith("/messages"):
            NAMES["transaction"] = post("transactions")["id"]
        if "/tokens" in path:
            post(f"{origin}/v1/tokens", {"name": "t"})

    client = httpx.Client(
        base_url=f"http://127.0.0.1:{gateway.ports['http']}/v1/vhosts/%2F/",
        auth=("guest", "guest"),
        timeout=60,
    )
    epoch = str(post("producers", {"name": "p"})["epoch"])
    session = requests.Session()
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        if isinstance(case.body, dict):
            if path.endswith("/pull"):
                case.body["wait_ms"] = 0
            if isinstance(case.body.get("url"), str):
                case.body["url"] = WEBHOOK["url"]  # nothing is sent anywhere
                if "source" in case.body:
                    case.body["source"] = WEBHOOK["source"]
        if path.endswith("/half") and isinstance(case.body, dict):
            case.body |= {name: NAMES[name] for name in ("queue", "exchange") if name in case.body}
            case.body |= {"ask": WEBHOOK["url"]} if "ask" in case.body else {}
        if "/tokens" in path and isinstance(case.body, dict) and "user" in case.body:
            case.body["user"] = "guest"
        if case.query and "user" in case.query:
            case.query["user"] = "guest"
        if case.query and "wait_ms" in case.query:
            case.query["wait_ms"] = 0
        make()
        numbered = {"Penstock-Producer": "p", "Penstock-Epoch": epoch, "Penstock-Sequence": "0"}
        if case.headers and not numbered.keys().isdisjoint(case.headers):
            # Of parameters that exclude one another, the first one present counts.
            case.headers = numbered
            (case.query or {}).pop("txn", None)
        elif case.query and "txn" in case.query:
            named = {"topic": case.query["topic"]} if "topic" in case.query else {}
            case.query = {"txn": NAMES["transaction"], **named}
            case.headers = {}
        case.path_parameters = {name: NAMES[name] for name in case.path_parameters}
        answer = case.call(session=session, auth=("guest", "guest"), timeout=60)
        statuses.add(answer.status_code)
        assert not unexplained(answer), (case.body, case.query, case.headers, answer.text)
        case.validate_response(
            answer,
            checks=[
                schemathesis.checks.not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )

    try:
        run()
    finally:
        session.close()
        client.close()
    # Generated requests also succeed, except where handles and positions cannot be generated.
    assert path.endswith(NEEDS_HANDLES) or any(status < 300 for status in statuses), statuses
