"""Each waiting request gets an answer, and a refusal names the thing and a remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.protocols.native.codec import errors
from penstock.subscriptions.cursor._keys import slot
from tests.reference import native_frames as wire
from tests.support.native_session import Client, World

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "protocols" / "native"
DOCUMENT = (ROOT / "docs" / "reference" / "native.md").read_text()


def test_a_receipt_for_a_consumer_that_is_gone_is_refused(world: World) -> None:
    client = Client(world)
    client.request("subscribe", handle=7, topic="t", subscription="s", create=True)
    client.request("delete_subscription", topic="t", subscription="s")
    client.take()
    client.send(wire.ack(7, [(1, 1)]) + wire.nack(7, [(1, 1)]) + wire.credit(7, 1, 1))
    assert client.take() == []
    client.send(wire.ack(7, [(1, 1)], request=5))
    ((kind, id, payload),) = client.take()
    assert (kind, id, json.loads(payload)["code"]) == (0x0F, 5, "unknown_handle")
    assert client.session.running


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_a_cumulative_receipt_is_refused_where_several_share(world: World, kind: str) -> None:
    client = Client(world)
    client.request("subscribe", handle=7, topic="t", subscription="s", create=True, kind=kind)
    client.send(wire.ack(7, [(1, 1)], request=5, cumulative=True))
    ((type_, id, payload),) = client.take()
    assert (type_, id, json.loads(payload)["code"]) == (0x0F, 5, "not_cumulative")
    assert client.session.running
    client.send(wire.ack(7, [(1, 1)], cumulative=True))
    ((type_, id, payload),) = client.take()
    assert (type_, id, json.loads(payload)["code"]) == (0x0F, 0, "not_cumulative")
    assert not client.session.running


MISTAKES = {
    "no topic and no exchange": {"do": "open_producer", "handle": 1},
    "nothing to do": {"handle": 1},
    "an epoch of nobody": {"do": "open_producer", "handle": 1, "topic": "t", "epoch": 3},
    "an epoch of who has none": {
        "do": "open_producer",
        "handle": 1,
        "topic": "t",
        "name": "n",
        "numbered": True,
        "epoch": 3,
    },
    "no consumer": {"do": "extend", "handle": 9, "ranges": []},
    "sticky without ranges": {
        "do": "subscribe",
        "handle": 1,
        "topic": "t",
        "subscription": "s",
        "kind": "key_shared",
        "sticky": True,
    },
    "ranges without sticky": {
        "do": "subscribe",
        "handle": 1,
        "topic": "t",
        "subscription": "s",
        "kind": "key_shared",
        "ranges": [[0, 1]],
    },
    "a range that ends too far": {
        "do": "subscribe",
        "handle": 1,
        "topic": "t",
        "subscription": "s",
        "kind": "key_shared",
        "sticky": True,
        "ranges": [[0, 65536]],
    },
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_request_is_told_with_its_remedy(world: World, mistake: str) -> None:
    client = Client(world)
    client.request("create_topic", topic="t")
    fields = dict(MISTAKES[mistake])
    client.take()
    client.send(client.json_frame(0x05, fields, 3))
    ((kind, id, payload),) = client.take()
    told = json.loads(payload)
    assert (kind, id) == (0x0F, 3)
    assert told["code"] in ("bad_field", "unknown_handle")
    assert told["message"] and told["remedy"] and "None" not in told["message"]
    assert not told["retryable"]


def test_a_named_producer_is_told_of_by_its_name(world: World) -> None:
    client = Client(world)
    opened = {"topic": "t", "create": True, "name": "shop"}
    first = client.request("open_producer", handle=1, **opened)["epoch"]
    client.take()
    client.produce(1, b"x", sequence=5)
    client.request("open_producer", handle=2, **opened)
    client.produce(1, b"x", sequence=0)
    told = [json.loads(payload) for kind, _, payload in client.take() if kind == 0x13]
    assert [one["message"] for one in told] == [
        "producer 'shop' sent number 5 where 0 follows",
        f"producer 'shop' of epoch {first} was replaced by one of epoch {first + 1}",
    ]
    older = client.request("open_producer", handle=3, epoch=first, **opened)
    assert (older["code"], older["message"]) == ("fenced", told[1]["message"])


def test_the_document_lists_every_code() -> None:
    """Those that the front end gives itself; the others are names of the broker's refusals."""
    said = DOCUMENT.partition("Codes: ")[2].partition("names of the broker")[0]
    listed = set(re.findall(r"`([a-z_]+)`", said))
    source = "".join(path.read_text() for path in FOLDER.rglob("*.py"))
    given = set(re.findall(r'(?:RequestError|fault)\(\s*"([a-z_]+)"', source))
    given |= set(re.findall(r'fault\(\s*"([a-z_]+)"', "".join(p.read_text() for p in FOLDER.rglob("*.pyx"))))
    given |= set(re.findall(r'^ {4}"([a-z_]+)": \(\n? *"', source, re.M))
    given |= set(errors._RENAMED.values())
    assert len(given) > 20
    assert given <= listed


def test_the_document_says_where_a_key_goes() -> None:
    said = re.findall(r"`\"([a-z0-9]*)\"` (\d+)", DOCUMENT)
    assert len(said) == 3
    assert [slot(key.encode()) for key, _ in said] == [int(number) for _, number in said]
