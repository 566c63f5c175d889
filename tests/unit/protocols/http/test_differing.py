"""The changes that an import of definitions would make."""

from __future__ import annotations

from typing import Any

from penstock.protocols.http.management.definitions.differences import difference

THERE: dict[str, Any] = {
    "users": [{"name": "u", "tags": ["a", "b"], "password_hash": "x"}],
    "queues": [
        {"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 1}}
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "p",
            "pattern": "^a",
            "definition": {"max-length": 1, "expires": 2},
            "priority": 0,
        }
    ],
    "bindings": [
        {
            "vhost": "/",
            "source": "x",
            "destination_type": "queue",
            "destination": "q",
            "routing_key": "",
            "arguments": {},
        }
    ],
    "mqtt_sessions": [{"vhost": "/", "client_id": "c", "user": "u", "subscriptions": []}],
}
NOTHING: dict[str, Any] = {"create": {}, "change": {}, "conflict": {}, "kept": {}}


def test_the_same_changes_nothing() -> None:
    assert difference(THERE, THERE) == NOTHING
    assert difference(THERE, {"rabbit_version": "4.2.0"}) == NOTHING


def test_another_spelling_of_a_definition_is_no_difference() -> None:
    file = {
        "users": [{"name": "u", "tags": "b,a"}],
        "bindings": [{**THERE["bindings"][0], "arguments": [], "properties_key": "~"}],
        "policies": [{**THERE["policies"][0], "definition": {"expires": 2, "max-length": 1}}],
    }
    assert difference(THERE, file) == NOTHING


def test_each_thing_is_named_with_what_would_become_of_it() -> None:
    file = {
        "users": [{"name": "u", "tags": ["a"]}, {"name": "new"}],
        "queues": [{**THERE["queues"][0], "arguments": {"x-max-length": 2}}],
        "policies": [{**THERE["policies"][0], "pattern": "^b"}, {**THERE["policies"][0], "vhost": "v"}],
        "bindings": [{**THERE["bindings"][0], "routing_key": "k"}],
        "mqtt_sessions": [{**THERE["mqtt_sessions"][0], "user": "other"}],
    }
    assert difference(THERE, file) == {
        "create": {
            "users": [{"name": "new"}],
            "policies": [{"vhost": "v", "name": "p"}],
            "bindings": [{**THERE["bindings"][0], "routing_key": "k"}],
        },
        "change": {
            "users": [{"name": "u", "differs": ["tags"]}],
            "policies": [{"vhost": "/", "name": "p", "differs": ["pattern"]}],
        },
        "conflict": {"queues": [{"vhost": "/", "name": "q", "differs": ["arguments"]}]},
        "kept": {"mqtt_sessions": [{"vhost": "/", "client_id": "c", "differs": ["user"]}]},
    }
