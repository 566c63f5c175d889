"""RabbitMQ's own management pages (4.0 and 4.3) get what they ask for, path by path."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.support.brokers import Gateway
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")

PATHS = (
    "bindings", "bindings/{v}", "channels", "cluster-name", "connections", "consumers", "definitions",
    "definitions/{v}", "deprecated-features", "deprecated-features/used", "exchanges", "exchanges/{v}",
    "exchanges/{v}/amq.topic", "exchanges/{v}/amq.topic/bindings/destination",
    "exchanges/{v}/amq.topic/bindings/source", "extensions", "feature-flags", "nodes", "nodes/{node}",
    "nodes/{node}/memory", "operator-policies", "operator-policies/{v}", "overview", "permissions",
    "policies", "policies/{v}", "queues", "queues/{v}", "queues/{v}/{q}", "queues/{v}/{q}/bindings",
    "topic-permissions", "user-limits", "users", "users/guest", "users/guest/permissions",
    "users/guest/topic-permissions", "version", "vhost-limits", "vhosts", "vhosts/{v}",
    "vhosts/{v}/permissions", "vhosts/{v}/topic-permissions", "whoami",
    "queues?page=1&page_size=100&name=&use_regex=false&pagination=true&sort=name&sort_reverse=false",
    "queues/{v}/{q}?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5",
    "nodes/{node}?memory=true&binary=true&node_stats_age=60&node_stats_incr=5",
)  # fmt: skip


@pytest.fixture(scope="module")
def names(gateway: Gateway) -> dict[str, str]:
    """A queue, and what is in the places of the paths."""
    api = Api(gateway)
    assert api.status("PUT", "queues/%2F/asked", {"durable": True}) == 201
    node = quote(api.get("nodes")[0]["name"], safe="")
    api.close()
    return {"v": "%2F", "q": "asked", "node": node}


@pytest.mark.parametrize("path", PATHS)
def test_a_page_gets_what_it_draws(api: Api, names: dict[str, str], path: str) -> None:
    assert api.send("GET", path.format(**names)).status_code == 200


def test_its_buttons_reset_the_histories(gateway: Gateway, api: Api, names: dict[str, str]) -> None:
    """For administrators; the unit test of the history says what is reset."""
    assert api.status("DELETE", "reset") == 204
    assert api.status("DELETE", f"reset/{names['node']}") == 204
    assert api.status("DELETE", "reset/nobody") == 404
    assert [one["action"] for one in api.get("audit")].count("history.reset") >= 2
    assert api.status("PUT", "users/ann", {"password": "p", "tags": "monitoring"}) == 201
    monitor = Api(gateway, "ann", "p")
    assert monitor.status("DELETE", "reset") == 401
    monitor.close()
