"""The management API's OpenAPI document is true: requests made from it are taken, and none is a fault."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.managed import ALL_SETTINGS, all_kinds, places
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own document")

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "4"))
"""Requests for each operation with a body or a query; `make fuzz-http` sets it."""
NAMES = {
    "vhost": "%2F",
    "name": "fuzz",
    "source": "amq.topic",
    "destination": "q",
    "user": "fuzz",
    "exchange": "amq.topic",
    "limit": "max-connections",
    "props": "~",
    "component": "shovel",
    "password": "p%C3%A4ss",
    "node": "none",
    "within": "1",
    "unit": "weeks",
    "port": "1",
    "id": "0",
    "protocol": "amqp",
}
VARIED = {"requestBody", "parameters"}
"""Parts of an operation without which all requests for it are the same."""
PLOTS = ("lengths", "msg_rates", "data_rates", "node_stats")
EMPTY = {
    "/api/connections/username/{user}",
    "/api/connections/{name}/sessions",
    "/api/deprecated-features",
    "/api/deprecated-features/used",
    "/api/exchanges/{vhost}/{name}/bindings/destination",
    "/api/findings",
    "/api/log-readers",
    "/api/slow-consumers",
    "/api/users/without-permissions",
}
"""Lists that may be empty here."""
EXPLAINED = {
    "not a valid URI": "A URI of AMQP, such as amqp://.",
    "should begin with": "such as penstock://HOST.",
    "the payload is not base64": "In base64, if payload_encoding says so.",
    "is not of the form": "A regular expression.",
    "regular expression": "A regular expression.",
    "the property": "AMQP's, such as content_type.",
    "the message cannot be encoded": "AMQP's, such as content_type.",
    "x-": "Those of docs/reference/amqp.md, such as x-max-length.",
    "argument": "Those of docs/reference/amqp.md, such as x-max-length.",
    "inequivalent arg": "As it is, if it is there.",
    "password_hash": "As an export has it, in base64; empty: none.",
    '<<"shovel">>': "Of its component:",
    "Cannot specify": "Of its component:",
    "Must specify": "Of its component:",
    "value should be": "Of its component:",
    "no_such_user": "Names of users that are there.",
    "there is no worker": "A worker that there is.",
    "are numbers of seconds": "in seconds: 1 to 1000 steps.",
    "which is at least 1": "in seconds: 1 to 1000 steps.",
    "Page out of range": "A page that there is",
    "Invalid pagination": "A page that there is",
    "from is a time": "A time with its zone",
}
"""Refusals that no schema can express, and the words of the document that say so."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = Authority(tmp_path_factory.mktemp("openapi_tls")).server()
    tls = {
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "amqp.tls_listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path_factory.mktemp("openapi"), settings={**ALL_SETTINGS, **tls}) as running:
        yield running


@pytest.fixture(scope="module")
def document(gateway: Gateway) -> Any:
    """Read without a login."""
    answer = httpx.get(f"http://127.0.0.1:{gateway.ports['management']}/api/openapi.json", timeout=LIMIT_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_route_is_there(document: Any, gateway: Gateway) -> None:
    paths = document["paths"]
    assert {"get", "put", "delete", "parameters"} == set(paths["/api/queues/{vhost}/{name}"])
    assert "/api/openapi.json" not in paths
    assert len(paths) > 80
    # A route with a body and no schema would be refused for want of one, for everybody who reads this.
    without = [
        (method, path)
        for path, item in paths.items()
        for method in ("put", "post")
        if method in item and "requestBody" not in item[method]
    ]
    api = Api(gateway)
    for method, path in without:
        words = (method.upper(), _named(path))
        answer = api.send(*words)
        assert answer.status_code not in (200, 201, 500) and "not_json" not in answer.text, words
        assert api.send(*words, {}).status_code == answer.status_code, words
    api.close()


def _named(path: str) -> str:
    return path.removeprefix("/api/").format(**NAMES)


def test_requests_made_from_the_document_are_taken(document: Any, gateway: Gateway) -> None:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{gateway.ports['management']}")
    api = Api(gateway)
    api.send("PUT", "queues/%2F/q", {"durable": True})
    words, faults, refused, cases = str(document), list[Any](), list[Any](), 0
    session = requests.Session()
    for path, item in document["paths"].items():
        for method in sorted(item.keys() - {"parameters"}):
            for body, answer in _tried(api, session, schema[path][method.upper()], item[method]):
                cases += 1
                # Checks of health say by 503 that something is not as it should be.
                if answer.status_code >= 500 and not path.startswith("/api/health/"):
                    faults.append((method, path, body, answer.text))
                if answer.status_code != 400 or not item[method].keys() & VARIED:
                    continue
                reason = str(answer.json().get("reason"))
                if reason.startswith("404 NOT_FOUND"):  # RabbitMQ's way to say it of an exchange
                    continue
                if not any(why in reason and said in words for why, said in EXPLAINED.items()):
                    refused.append((method, path, body, reason))
    session.close()
    api.close()
    assert faults == [], f"{len(faults)} of {cases} requests were too much for the gateway"
    assert refused == [], f"{[one[1::2] for one in refused]}; {len(refused)} of {cases} requests were refused"


def _tried(api: Api, session: requests.Session, operation: Any, described: Any) -> list[tuple[Any, Any]]:
    """The bodies or queries, and the answers, of requests for one operation."""
    found: list[tuple[Any, Any]] = []

    @settings(
        max_examples=EXAMPLES if described.keys() & VARIED else 1,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        if "user" in case.path:
            api.send("PUT", "users/fuzz", {"tags": "", "password_hash": ""})
        if isinstance(case.body, dict) and "users" in case.body:
            case.body["users"] = ["fuzz"]
        case.path_parameters = {name: NAMES[name] for name in case.path_parameters}
        case.headers = {}
        answer = case.call(session=session, auth=("guest", "guest"), timeout=LIMIT_S)
        case.validate_response(
            answer, checks=[status_code_conformance, content_type_conformance, response_schema_conformance]
        )
        found.append((case.body if "requestBody" in described else case.query, answer))

    run()
    return found


def test_answers_about_one_of_each_kind_are_as_the_document_says(document: Any, gateway: Gateway) -> None:
    api = Api(gateway)
    schemas = document["components"]
    absent, wrong, seen = [], [], set()
    may = {"user": "ann", "vhost": "/", "operation": "read", "name": "work"}
    plots = {f"{group}_{name}": 60 for group in PLOTS for name in ("age", "incr")}
    with all_kinds(gateway, api):
        for path, item in document["paths"].items():
            if "get" not in item:
                continue
            assert "200" in item["get"]["responses"], f"{path}: its answer is not described"
            target = path.removeprefix("/api/").format(**places(api, path))
            answer = api.client.get(target, params=may if path == "/api/may" else plots)
            if answer.status_code != 200:
                absent.append((target, answer.status_code, answer.text))
                continue
            found = item["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            value = answer.json()
            checker = jsonschema_rs.validator_for({**found, "components": schemas})
            wrong += [(path, list(one.instance_path), one.message) for one in checker.iter_errors(value)]
            if value:
                seen.add(path)
    api.close()
    assert absent == []
    assert wrong == []
    # Nothing is checked in an empty list.
    assert {path for path, item in document["paths"].items() if "get" in item} - seen <= EMPTY


QUEUE = {"durable": True, "arguments": {"x-max-length": 9}}
SHOVEL = {"src-uri": "amqp://", "src-queue": "dead", "dest-uri": "amqp://127.0.0.1:1", "dest-queue": "q2"}
CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "cluster-name", {"name": "plant"}),
    ("PUT", "feature-flags/NODE/enable", None),
    ("PUT", "nodes/NODE/log-level", {"level": "info"}),
    ("PUT", "nodes/NODE/memory-high-watermark", {"bytes": 2**40}),
    ("PUT", "nodes/NODE/application", {"state": "running"}),
    ("PUT", "recording", {"kinds": [], "for_s": 1}),
    ("PUT", "vhosts/new", {"description": "new"}),
    ("PUT", "users/new", {"tags": "management", "password": "x"}),
    ("PUT", "permissions/new/new", {"configure": "", "write": ".*", "read": ".*"}),
    ("PUT", "topic-permissions/new/new", {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
    ("PUT", "user-limits/new/max-connections", {"value": 5}),
    ("PUT", "vhost-limits/new/max-queues", {"value": 500}),
    ("PUT", "queues/%2F/new", QUEUE),
    ("PUT", "exchanges/%2F/new", {"type": "topic", "durable": True}),
    ("PUT", "policies/%2F/new", {"pattern": "^new", "definition": {"max-length": 9}}),
    ("PUT", "operator-policies/%2F/new", {"pattern": "^new", "definition": {"max-length": 9}}),
    ("PUT", "parameters/shovel/%2F/new", {"value": SHOVEL}),
    ("PUT", "global-parameters/new", {"value": {"a": 1}}),
    ("POST", "login", {"username": "guest", "password": "guest"}),
    ("POST", "bindings/%2F/e/new/q/new", {"routing_key": "k"}),
    ("POST", "bindings/%2F/e/new/e/amq.topic", {"routing_key": "k", "arguments": {"a": 1}}),
    (
        "POST",
        "exchanges/%2F/new/publish",
        {"routing_key": "k", "payload": "x", "payload_encoding": "string", "properties": {"type": "t"}},
    ),
    ("POST", "exchanges/%2F/new/route", {"routing_key": "k"}),
    ("POST", "queues/%2F/new/get", {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}),
    ("POST", "queues/%2F/new/actions", {"action": "sync"}),
    ("POST", "definitions-dry-run", {"queues": [{"name": "other", "vhost": "/", **QUEUE}]}),
    ("POST", "definitions", {"queues": [{"name": "other", "vhost": "/", **QUEUE}]}),
    ("POST", "all-configuration", {"queues": [{"name": "other", "vhost": "/", **QUEUE}]}),
    ("POST", "definitions-dry-run/%2F", {"queues": [{"name": "another", **QUEUE}]}),
    ("POST", "certificates/reload", None),
    ("DELETE", "reset", None),
    ("DELETE", "reset/NODE", None),
    ("POST", "definitions/%2F", {"queues": [{"name": "other", **QUEUE}]}),
    ("POST", "rebalance/queues", None),
    ("POST", "vhosts/new/start/NODE", None),
    ("DELETE", "login", None),
    ("DELETE", "federation-links/vhost/%2F/LINK/NODE/restart", None),
    ("DELETE", "shovels/vhost/%2F/new/restart", None),
    ("DELETE", "shovels/vhost/%2F/new", None),
    ("DELETE", "parameters/shovel/%2F/sh", None),
    ("DELETE", "connections/CONNECTION", None),
    ("DELETE", "connections/username/new", None),
    ("DELETE", "queues/%2F/new/contents", None),
    ("DELETE", "bindings/%2F/e/new/q/new/k", None),
    ("DELETE", "bindings/%2F/e/new/e/amq.topic/PROPS", None),
    ("DELETE", "policies/%2F/new", None),
    ("DELETE", "operator-policies/%2F/new", None),
    ("DELETE", "global-parameters/new", None),
    ("DELETE", "queues/%2F/new", None),
    ("DELETE", "exchanges/%2F/new", None),
    ("DELETE", "vhost-limits/new/max-queues", None),
    ("DELETE", "user-limits/new/max-connections", None),
    ("DELETE", "topic-permissions/new/new/amq.topic", None),
    ("DELETE", "topic-permissions/new/new", None),
    ("DELETE", "permissions/new/new", None),
    ("DELETE", "vhosts/new", None),
    ("DELETE", "users/new", None),
    ("PUT", "users/new", {"tags": "", "password": "x"}),
    ("POST", "users/bulk-delete", {"users": ["new"]}),
]
"""A change of each kind that succeeds, in order: method, path and body."""


def test_answers_to_changes_are_as_the_document_says(document: Any, gateway: Gateway) -> None:
    api = Api(gateway)
    paths = {
        re.compile(re.sub(r"\{\w+\}", "[^/]+", path)): (path, item)
        for path, item in document["paths"].items()
    }
    wrong: list[Any] = []
    seen = set[tuple[str, str, str]]()
    with all_kinds(gateway, api):
        for method, path, body in CHANGES:
            target = _placed(api, path)
            described = min(
                (found for form, found in paths.items() if form.fullmatch(f"/api/{target}")),
                key=lambda found: found[0].count("{"),
            )
            answers = described[1][method.lower()]["responses"]
            # Made, and made again.
            for _ in range(2 if "201" in answers and method == "PUT" else 1):
                answer = api.send(method, target, body)
                status = str(answer.status_code)
                seen.add((method, described[0], status))
                if status not in answers:
                    wrong.append((method, path, status, answer.text))
                    continue
                content = answers[status].get("content")
                if content is None:
                    wrong += [(method, path, answer.text)] * bool(answer.content)
                    continue
                schema = {**content["application/json"]["schema"], "components": document["components"]}
                wrong += [
                    (method, path, list(one.instance_path), one.message)
                    for one in jsonschema_rs.validator_for(schema).iter_errors(answer.json())
                ]
    api.close()
    assert wrong == []
    told = {
        (method.upper(), path, status)
        for path, item in document["paths"].items()
        for method in item.keys() & {"put", "post", "delete"}
        for status in item[method]["responses"]
        if status.startswith("2")
    }
    assert seen == told, "each answer that is described, and no other"


def _placed(api: Api, path: str) -> str:
    """A path with the names of things in this gateway."""
    if "feature-flags" in path:
        return path.replace("NODE", api.get("feature-flags")[0]["name"])
    if "CONNECTION" in path:
        found = next(one for one in api.get("connections") if "MQTT" in one["protocol"])
        path = path.replace("CONNECTION", quote(found["name"], safe=""))
    if "LINK" in path:
        path = path.replace("LINK", api.get("federation-links")[0]["id"])
    if "PROPS" in path:
        (binding,) = api.get(path.rpartition("/")[0])
        path = path.replace("PROPS", quote(binding["properties_key"], safe=""))
    return path.replace("NODE", quote(api.get("overview")["node"], safe=""))
