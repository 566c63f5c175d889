"""GET /api/dead-letters/V: the queues that dead letters go to, by rules, bindings and webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such list")


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


@pytest.fixture
def vhost(api: Api, unique: str) -> Iterator[str]:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    yield unique
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def declare(api: Api, vhost: str, name: str, **arguments: object) -> None:
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    assert api.status("PUT", f"queues/{vhost}/{name}", {"durable": True, "arguments": given}) == 201


def sources(api: Api, vhost: str, query: str = "") -> dict[str, tuple[list[str], list[str]]]:
    found = api.get(f"dead-letters/{vhost}{query}")
    assert all(one["vhost"] == vhost for one in found)
    return {one["name"]: (one["from"], one["webhooks"]) for one in found}


def test_queues_are_found_by_arguments_policies_and_bindings(api: Api, vhost: str) -> None:
    assert sources(api, vhost) == {}
    for kind in ("direct", "fanout"):
        assert api.status("PUT", f"exchanges/{vhost}/{kind}", {"type": kind}) == 201
    for name in ("dead", "other", "any", "plain"):
        declare(api, vhost, name)
    declare(api, vhost, "kept", queue_type="stream")
    for exchange, queue, key in (("direct", "dead", "k"), ("direct", "other", "o"), ("fanout", "any", "")):
        bound = api.status("POST", f"bindings/{vhost}/e/{exchange}/q/{queue}", {"routing_key": key})
        assert bound == 201
    declare(api, vhost, "by-key", dead_letter_exchange="direct", dead_letter_routing_key="k")
    declare(api, vhost, "by-its-own", dead_letter_exchange="direct")
    declare(api, vhost, "to-all", dead_letter_exchange="fanout")
    declare(api, vhost, "gone", dead_letter_exchange="", dead_letter_routing_key="nothing")
    declare(api, vhost, "to-stream", dead_letter_exchange="", dead_letter_routing_key="kept")
    declare(api, vhost, "itself", dead_letter_exchange="")
    assert sources(api, vhost) == {
        "any": (["to-all"], []),
        "dead": (["by-key", "by-its-own"], []),
        "itself": (["itself"], []),
        "other": (["by-its-own"], []),
    }
    rule = {
        "pattern": "^plain$",
        "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"},
        "apply-to": "queues",
    }
    assert api.status("PUT", f"policies/{vhost}/p", rule) == 201
    assert sorted(sources(api, vhost)["dead"][0]) == ["by-its-own", "by-key", "plain"]
    assert api.status("DELETE", f"policies/{vhost}/p") == 204
    assert "plain" not in sources(api, vhost)["dead"][0]


def test_a_page_of_them_is_sorted_and_filtered(api: Api, vhost: str) -> None:
    queues: list[dict[str, Any]] = [{"name": f"dead-{number:03}", "arguments": {}} for number in range(120)]
    for number in range(120):
        key = f"dead-{number:03}" if number else "dead-007"
        rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key}
        queues.append({"name": f"q{number:03}", "arguments": rules})
    for number in range(15):
        rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead-033"}
        queues.append({"name": f"more{number:03}", "arguments": rules})
    made = [{**one, "durable": True, "auto_delete": False} for one in queues]
    assert api.status("POST", f"definitions/{vhost}", {"queues": made}) < 300
    body = {"properties": {}, "routing_key": "dead-100", "payload": "x", "payload_encoding": "string"}
    assert api.send("POST", f"exchanges/{vhost}/amq.default/publish", body).json() == {"routed": True}
    page = api.get(f"dead-letters/{vhost}?page=1&page_size=2&sort=sources&sort_reverse=true")
    assert (page["total_count"], page["page_count"]) == (119, 60)
    assert [(one["name"], one["sources"], len(one["from"])) for one in page["items"]] == [
        ("dead-033", 16, 10),
        ("dead-007", 2, 2),
    ]
    page = api.get(f"dead-letters/{vhost}?page=1&page_size=1&sort=messages&sort_reverse=true")
    assert [(one["name"], one["messages"]) for one in page["items"]] == [("dead-100", 1)]
    assert list(sources(api, vhost, "?name=dead-11")) == [f"dead-11{number}" for number in range(10)]


def test_that_of_a_webhook_is_in_the_list(gateway: Gateway, api: Api, vhost: str) -> None:
    declare(api, vhost, "q")
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/{vhost}/webhooks/hook"
    body = {"source": {"queue": "q"}, "url": "https://receiver.invalid/here"}
    assert httpx.put(base, json=body, auth=("guest", "guest"), timeout=120).status_code == 201
    assert sources(api, vhost) == {"webhook.hook.dead": ([], ["hook"])}
    assert httpx.delete(base, auth=("guest", "guest"), timeout=120).status_code == 204


def test_it_is_for_who_may_enter_the_vhost(gateway: Gateway, api: Api, vhost: str) -> None:
    assert api.status("PUT", f"users/{vhost}", {"password": "p", "tags": "management"}) == 201
    with closing(Api(gateway, vhost, "p")) as theirs:
        assert theirs.status("GET", f"dead-letters/{vhost}") == 401
    assert api.status("DELETE", f"users/{vhost}") == 204


def test_with_several_workers_each_vhost_has_its_own(tmp_path: Path, unique: str) -> None:
    with Gateway(tmp_path, settings={**SETTINGS, "server.workers": "2"}) as gateway:
        with closing(Api(gateway)) as api:
            for number in range(3):
                vhost = f"{unique}{number}"
                assert api.status("PUT", f"vhosts/{vhost}") == 201
                declare(api, vhost, "dead")
                declare(api, vhost, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
                assert sources(api, vhost) == {"dead": (["q"], [])}
