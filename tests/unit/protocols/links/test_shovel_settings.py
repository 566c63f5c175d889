"""The value of a shovel's parameter: names, defaults, mistakes, and what is shown of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import jsonschema_rs
import pytest

from penstock.protocols.links.amqp.parameters import shown, unmasked
from penstock.protocols.links.amqp.settings import local_vhosts, shovel_settings
from penstock.protocols.links.terms import shovel_schemas

_LEAST = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://u:secret@h"}


def test_defaults_are_rabbitmqs() -> None:
    made = shovel_settings(_LEAST)
    assert made.ack_mode == "on-confirm" and made.reconnect_delay_s == 5.0
    assert made.source.prefetch == 20_000 and made.source.delete_after == "never"
    assert made.destination.queue is made.destination.exchange is made.destination.key is None


def test_all_names() -> None:
    made = shovel_settings(
        {
            "src-protocol": "amqp091",
            "src-uri": ["amqp://", "amqp:///v"],
            "src-exchange": "e",
            "src-exchange-key": "k",
            "src-prefetch-count": 7,
            "src-delete-after": 9,
            "dest-protocol": "amqp091",
            "dest-uri": "amqp://h",
            "dest-exchange": "",
            "dest-exchange-key": "to",
            "dest-add-forward-headers": True,
            "dest-publish-properties": {"delivery_mode": 2.0},
            "ack-mode": "no-ack",
            "reconnect-delay": 0,
        }
    )
    assert made.source.uris == ("amqp://", "amqp:///v")
    assert (made.source.queue, made.source.exchange, made.source.key) == (None, "e", "k")
    assert (made.source.prefetch, made.source.delete_after) == (7, 9)
    assert (made.destination.exchange, made.destination.key) == ("", "to")
    assert made.destination.forward_headers
    # As RabbitMQ takes it; but there the message then has no valid header.
    assert repr(made.destination.properties) == "{'delivery_mode': 2}"
    assert (made.ack_mode, made.reconnect_delay_s) == ("no-ack", 0.0)
    assert local_vhosts(made) == {"/", "v"}


def test_terms_of_amqp_10() -> None:
    made = shovel_settings(
        {
            **_BOTH_10,
            "src-delete-after": 5.0,
            "dest-properties": {"subject": "s"},
            "dest-application-properties": {"a": "b"},
            "dest-message-annotations": {"x-a": "b"},
            "dest-add-forward-headers": True,
        }
    )
    assert (made.source.protocol, made.source.address) == ("amqp10", "/queues/q")
    assert (made.destination.protocol, made.destination.address) == ("amqp10", "/queues/r")
    assert made.destination.properties == {"subject": "s"} and made.destination.annotations == {"x-a": "b"}
    assert made.destination.application_properties == {"a": "b"} and made.source.delete_after == 5
    assert isinstance(made.source.delete_after, int)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"src-uri": None}, "src-uri should be a URI"),
        ({"dest-uri": []}, "dest-uri should be a URI"),
        ({"dest-uri": "amqp://u:secret@h:x"}, "dest-uri not a valid URI"),
        ({"src-exchange": "e"}, "Cannot specify 'src-exchange' and 'src-queue'"),
        ({"dest-queue": "q", "dest-exchange": "e"}, "Cannot specify 'dest-exchange' and 'dest-queue'"),
        ({"src-protocol": "local"}, "src-protocol local is not supported by shovels here: use amqp091"),
        ({"src-protocol": "amqp10"}, 'Key "src-address" not found in <<"shovel">>'),
        ({"src-protocol": "amqp10", "src-address": "/queues/q"}, "Unrecognised terms [src-queue]"),
        ({"dest-protocol": "mqtt"}, "dest-protocol should be amqp091, amqp10 or penstock"),
        ({"ack-mode": "often"}, "ack-mode should be one of on-confirm, on-publish, no-ack"),
        ({"src-prefetch-count": 0}, "src-prefetch-count should be a number from 1 to 65535"),
        ({"src-delete-after": "soon"}, "src-delete-after should be never, queue-length or a number"),
        ({"reconnect-delay": True}, "reconnect-delay should be a number"),
        ({"dest-add-forward-headers": 1}, "dest-add-forward-headers should be boolean"),
        ({"dest-publish-properties": {"color": 1}}, "has color, which is no property"),
        ({"dest-publish-properties": {"priority": 256}}, "should be an integer from 0 to 255"),
        ({"dest-publish-properties": {"type": "ö" * 128}}, "has type cannot be sent by AMQP"),
        ({"dest-publish-properties": {"headers": {"a": 2**70}}}, "has headers cannot be sent by AMQP"),
        ({"src-key": "k"}, 'Unrecognised terms [src-key] in <<"shovel">>'),
        ({"dest-uri": "amqp://u:******@h"}, "dest-uri has a password that was hidden"),
    ],
)
def test_a_mistake_is_told_without_passwords(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as error:
        shovel_settings({**_LEAST, **change})
    assert told in str(error.value) and "secret" not in str(error.value)


def test_missing_parameters_are_told() -> None:
    with pytest.raises(ValueError) as error:
        shovel_settings({})
    assert str(error.value).splitlines() == [
        'Key "src-uri" not found in <<"shovel">>',
        'Key "dest-uri" not found in <<"shovel">>',
        "Must specify 'src-exchange' or 'src-queue'",
    ]


def test_passwords_are_hidden_and_come_back() -> None:
    value = {**_LEAST, "src-uri": ["amqp://a:secret@h", "amqp://"]}
    seen = shown(value)
    assert "secret" not in repr(seen) and seen["src-queue"] == "q"
    assert unmasked({**seen, "src-queue": "r"}, value) == {**value, "src-queue": "r"}
    # Another host does not get the password of before.
    moved = {**seen, "dest-uri": "amqp://u:******@other"}
    assert unmasked(moved, value)["dest-uri"] == "amqp://u:******@other"


_NATIVE = {
    "src-protocol": "penstock",
    "src-uri": "penstock://",
    "src-queue": "q",
    "dest-protocol": "penstock",
    "dest-uri": ["penstocks://h"],
    "dest-queue": "q",
}
_BOTH_10 = {
    "src-protocol": "amqp10",
    "src-uri": "amqp://",
    "src-address": "/queues/q",
    "dest-protocol": "amqp10",
    "dest-uri": "amqp://h",
    "dest-address": "/queues/r",
}
_FROM_10 = {**_BOTH_10, "dest-protocol": "amqp091", "dest-queue": "q"}
del _FROM_10["dest-address"]
_VALUES: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("src-protocol", "dest-protocol"), ("amqp091", "penstock", "amqp10", "local", "mqtt", 1)),
    **dict.fromkeys(
        ("src-uri", "dest-uri"), ("amqp://h", "penstock://h", ["amqp://h", "amqps://h"], [], "h")
    ),
    **dict.fromkeys(("src-queue", "src-exchange", "dest-queue", "dest-exchange"), ("", "a", 1)),
    "dest-exchange-key": ["k", None],
    "src-prefetch-count": [1, 0, 65535, 65536, 7.0, 7.5],
    "src-delete-after": ["never", 5, 5.0, "often"],
    "ack-mode": ["no-ack", "often"],
    "reconnect-delay": [0, 5.5, -1],
    "dest-add-forward-headers": [True, 1],
    "dest-publish-properties": [
        *(
            {"type": "t"},
            {"type": 1},
            {"type": "t" * 256},
            {"none": 1},
            {"headers": {"a": 1}},
            {"headers": 1},
        ),
        *({"delivery_mode": one} for one in (2, 2.0, 2.5, True, 3)),
        *({"priority": 256}, {"timestamp": 5}, {"timestamp": -1}),
    ],
    **dict.fromkeys(("src-address", "dest-address"), ("/queues/a", 1)),
    "dest-properties": [{"subject": "ö"}, {"subject": 1}, {"color": "c"}, {"content_type": "ö"}],
    "dest-application-properties": [{"a": "b"}, {"a": 1}],
    "dest-message-annotations": [{"x-a": "ö"}, {"x-ö": "b"}, 1],
    "unknown": [1],
}


_GONE = object()


def _is_taken(value: dict[str, Any]) -> bool:
    try:
        shovel_settings(value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("whole", [_LEAST, _NATIVE, _BOTH_10, _FROM_10])
def test_the_schema_takes_what_is_taken(whole: dict[str, Any]) -> None:
    """Each value that differs from a good one in at most two terms."""
    fits = jsonschema_rs.validator_for({"anyOf": shovel_schemas()})
    changes = [
        *((name, value) for name, values in _VALUES.items() for value in values),
        *((name, _GONE) for name in whole),
    ]
    taken = 0
    for one, other in combinations(changes, 2):
        value = {name: found for name, found in (whole | dict([one, other])).items() if found is not _GONE}
        taken += _is_taken(value)
        assert fits.is_valid(value) == _is_taken(value), value
    assert taken > 50
