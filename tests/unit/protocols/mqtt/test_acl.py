"""Access rights from a file in Mosquitto's syntax."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StartError
from penstock.protocols.mqtt.auth.acl import AclFile
from penstock.protocols.mqtt.publishing.publishing import publish
from penstock.protocols.mqtt.subscriptions.filters import covers
from penstock.router.authorization.identity import BROKER, Identity
from penstock.router.names import dotted, filter_of_binding
from penstock.router.routes._filters import SlashedTrie
from penstock.router.routes.topics import DottedTrie
from tests.reference import acl as plain
from tests.reference import mqtt_frames as f
from tests.reference.acl import overlaps
from tests.support.examples import histories
from tests.support.mqtt import Gateway

RULES = """
# of clients without a user name
topic read news/#
topic deny news/secret/#

user anna
topic rooms/+/light
topic write alarms
topic read $SYS/#

user bert smith
topic read #

pattern write devices/%c/up
pattern read devices/%u/#
"""
EXPIRY = b"\x11\0\0\x10\0"


def rules() -> AclFile:
    return AclFile(RULES, "acl", "guest")


@pytest.mark.parametrize(
    ("user", "client_id", "operation", "topic", "allowed"),
    [
        ("guest", "x", "read", "news/a", True),
        ("guest", "x", "read", "news/#", False),
        ("guest", "x", "read", "news/secret/a", False),
        ("guest", "x", "write", "news/a", False),
        ("guest", "x", "write", "rooms/1/light", False),
        ("anna", "x", "write", "rooms/1/light", True),
        ("anna", "x", "read", "rooms/+/light", True),
        ("anna", "x", "read", "rooms/#", False),
        ("anna", "x", "read", "news/a", False),
        ("anna", "x", "read", "alarms", False),
        ("anna", "x", "write", "alarms", True),
        ("anna", "x", "read", "$SYS/broker/+", True),
        ("bert smith", "x", "read", "#", True),
        ("bert smith", "x", "read", "$SYS/#", False),
        ("carl", "lamp", "write", "devices/lamp/up", True),
        ("carl", "lamp", "write", "devices/carl/up", False),
        ("carl", "lamp", "read", "devices/carl/#", True),
        ("carl", "a/b", "write", "devices/a/b/up", False),
        ("+", "+", "read", "devices/+/#", False),
    ],
)
def test_the_rights_of_the_acl_file(
    user: str, client_id: str, operation: str, topic: str, allowed: bool
) -> None:
    identity = Identity(user, client_id=client_id)
    assert rules().allow(identity, operation, topic) is allowed  # type: ignore[arg-type]


def test_an_empty_file_denies_everything() -> None:
    acl = AclFile("# nothing\n", "acl", "guest")
    assert not acl.allow(Identity("guest"), "read", "a") and not acl.allow(Identity("guest"), "write", "a")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("user\n", 1),
        ("topic a\nuser x\ntopci b\n", 3),
        ("topic read\n\ntopic a#/b", 3),
        ("pattern", 1),
        ("topic sometimes a/b", 1),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_number(text: str, line: int) -> None:
    with pytest.raises(StartError, match=f"rules.acl, line {line}:"):
        AclFile(text, "rules.acl", "guest")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"mqtt\.acl_file: .*missing"):
        AclFile.read(str(tmp_path / "missing"), "guest")


LEVELS = st.lists(st.sampled_from(["a", "b", "", "+", "$x"]), min_size=1, max_size=4)
FILTERS = st.builds(lambda levels, end: "/".join(levels + end), LEVELS, st.sampled_from([[], ["#"]]))


def matches(topic_filter: str, topic: str) -> bool:
    trie: SlashedTrie[int] = SlashedTrie()
    trie.add(topic_filter.encode(), lambda: 1)
    return bool(trie.match(topic.encode()))


@given(FILTERS, FILTERS, st.lists(st.sampled_from(["a", "b", "", "$x", "c"]), min_size=1, max_size=5))
def test_covering_and_overlapping_agree_with_matching(wide: str, narrow: str, levels: list[str]) -> None:
    topic = "/".join(levels)
    if not topic:
        return
    if covers(wide, narrow) and matches(narrow, topic):
        assert matches(wide, topic)
    if matches(wide, topic) and matches(narrow, topic):
        assert overlaps(wide, narrow)
    assert covers(wide, topic) == matches(wide, topic)


WORDS = st.lists(st.sampled_from(["a", "b", "", "*", "#", "$x", "a/b"]), min_size=1, max_size=4)


def bound(binding: str, key: bytes) -> bool:
    trie: DottedTrie[int] = DottedTrie()
    trie.add(binding.encode(), lambda: 1)
    return bool(trie.match(key))


@given(FILTERS, WORDS, st.lists(st.sampled_from(["a", "b", "", "$x", "a.b"]), min_size=1, max_size=4))
def test_a_binding_that_is_allowed_brings_nothing_that_is_denied(
    denied: str, words: list[str], levels: list[str]
) -> None:
    topic, binding = "/".join(levels), ".".join(words)
    acl = AclFile(f"topic readwrite #\ntopic readwrite $x/#\ntopic deny {denied}", "acl", "guest")
    guest = Identity("guest")
    by_key, slashed = filter_of_binding(binding.encode()).decode(), topic.replace(".", "/")
    if topic and matches(denied, slashed) and bound(binding, dotted(topic.encode())):
        assert not acl.allow(guest, "read", by_key, by_key=True)
        assert not acl.allow(guest, "write", slashed, by_key=True)


NAMES = st.sampled_from(["anna", "a", "a.b", "b/a", "+", "$x", "%c", "%u", "", "c"])
PARTS = st.lists(
    st.sampled_from(["a", "b", "", "+", "$x", "a.b", "%u", "%c", "%ux", "%c.%u"]), min_size=1, max_size=4
)
RULE = st.tuples(
    st.sampled_from(["", "", "anna", "a", "a.b"]),
    st.sampled_from(["read", "write", "readwrite", "deny", "deny"]),
    st.builds(lambda levels, end: "/".join(levels + end), PARTS, st.sampled_from([[], ["#"]])),
)


@settings(max_examples=histories(1500))
@given(
    st.lists(RULE, max_size=12),
    NAMES,
    NAMES,
    st.sampled_from(["read", "write"]),
    st.booleans(),
    st.one_of(FILTERS, PARTS.map("/".join), st.just("#")),
)
def test_the_tree_of_the_rules_says_what_the_rules_say_one_by_one(
    rules: list[tuple[str, str, str]], user: str, client_id: str, operation: str, by_key: bool, topic: str
) -> None:
    rules = [(name, access, rule) for name, access, rule in rules if rule.strip() == rule != ""]
    lines = [
        f"pattern {access} {rule}" if not name else f"user {name}\ntopic {access} {rule}"
        for name, access, rule in rules
    ]
    identity = Identity(user, client_id=client_id)
    acl = AclFile("\n".join(lines), "acl", "nobody")
    expected = plain.allow(rules, identity, operation, topic, by_key=by_key)
    assert acl.allow(identity, operation, topic, by_key=by_key) is expected  # type: ignore[arg-type]


def test_a_name_that_looks_like_a_variable_is_none() -> None:
    acl = AclFile("pattern write of/%u", "acl", "guest")
    assert acl.allow(Identity("%c", client_id="anna"), "write", "of/%c")
    assert not acl.allow(Identity("%c", client_id="anna"), "write", "of/anna")


def test_by_a_key_a_dot_is_a_slash_and_a_dollar_a_letter() -> None:
    guest = Identity("guest")
    acl = AclFile("topic #\ntopic deny a.b", "acl", "guest")
    assert acl.allow(guest, "write", "a/b") and not acl.allow(guest, "write", "a/b", by_key=True)
    acl = AclFile("topic #\ntopic deny $x/#", "acl", "guest")
    assert acl.allow(guest, "read", "#") and not acl.allow(guest, "read", "#", by_key=True)


@given(FILTERS, WORDS, st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=5))
def test_a_binding_that_is_allowed_brings_what_its_line_allows_alone(
    allowed: str, words: list[str], levels: list[str]
) -> None:
    topic, binding = "/".join(levels), ".".join(words)
    acl = AclFile(f"topic read {allowed}", "acl", "guest")
    by_key = filter_of_binding(binding.encode()).decode()
    if topic and bound(binding, dotted(topic.encode())) and not matches(allowed, topic):
        assert not acl.allow(Identity("guest"), "read", by_key, by_key=True)


def test_the_rules_are_about_the_exchange_of_topics_and_not_about_the_gateway_itself(
    gateway: Gateway,
) -> None:
    authorizer = gateway.broker.authorizer
    authorizer.topic_guard = AclFile("topic in/#", "acl", "guest")
    guest = gateway.guest
    assert authorizer.allow_topic(guest, "/", "read", "amq.topic", b"in.*.#")
    assert not authorizer.allow_topic(guest, "/", "read", "amq.topic", b"*.in")
    assert authorizer.allow_topic(guest, "/", "read", "another", b"*.in")
    assert authorizer.allow_topic(BROKER, "/", "write", "amq.topic", b"out")


def test_a_session_of_before_a_start_keeps_what_the_rules_still_allow(gateway: Gateway) -> None:
    peer = gateway.connect("one", 5, clean=False, props=EXPIRY)
    peer.subscribe(("in/a", 1), ("out/a", 1), ("$share/g/out/b", 1))
    gateway = gateway.restart(AclFile("topic in/#", "acl", "guest"))
    back = gateway.connect("one", 5, clean=False, props=EXPIRY)
    assert back.session_present
    assert back.session.client is not None
    assert list(back.session.client.subscriptions) == ["in/a"]
    gateway.stop()


def test_a_client_is_held_to_the_file(gateway: Gateway) -> None:
    gateway.broker.authorizer.topic_guard = AclFile(
        "topic read in/#\npattern write out/%c\ntopic deny in/no", "acl", "guest"
    )
    peer = gateway.connect("one", 5)
    assert peer.subscribe(("in/a", 1), ("in/#", 1), ("#", 0), ("$share/g/in/b", 1)) == [1, 1, 0, 1]
    assert peer.subscribe(("in/no", 1), ("out/#", 0), ("$share/g/in/no", 1)) == [0x87, 0x87, 0x87]
    assert gateway.connect("old", 4).subscribe(("in/a", 1), ("out/x", 1)) == [1, 0x80]
    assert peer.publish("out/one", qos=1, packet_id=1).bytes_taken() == f.ack(f.PUBACK, 1)
    assert peer.publish("out/two", qos=1, packet_id=2).bytes_taken() == f.ack(f.PUBACK, 2, 0x87)
    refused = gateway.peer(5)
    refused.send(f.connect("w", version=5, will=("out/x", b"", 0, False)))
    assert refused.received[0].body[1] == 0x87


TOPICS = ("a/x", "a/x/1", "a/y", "a/me", "a/you", "b", "c/1", "c/1/2")
PARTS = "topic deny a/x/#\ntopic read a/#\ntopic read c/+\ntopic write #\npattern deny a/%c"


def put(gateway: Gateway, *topics: str, retain: bool = False) -> None:
    """Publish as the gateway itself, whom no rule holds."""
    with gateway.log.unit():
        for topic in topics:
            publish(gateway.vhost, BROKER, topic.encode(), b"", topic.encode(), 1, retain, 0)
    gateway.settle()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscription_wider_than_the_rules_brings_what_they_allow(
    gateway: Gateway, version: int, qos: int
) -> None:
    """New and retained messages, those of a session that was away, and those of a group."""
    gateway.broker.authorizer.topic_guard = AclFile(PARTS, "acl", "guest")
    for topic in ("a/x", "a/y"):
        put(gateway, topic, retain=True)
    expiry = EXPIRY if version == 5 else b""
    peer = gateway.connect("me", version, clean=False, props=expiry)
    assert peer.subscribe(("#", qos)) == [qos]
    assert [m.topic for m in peer.publishes()] == [b"a/y"]
    put(gateway, *TOPICS)
    assert [m.topic for m in peer.publishes()] == [b"a/y", b"a/you", b"c/1"]
    peer.drop()
    put(gateway, *TOPICS)
    peer = gateway.connect("me", version, clean=False, props=expiry)
    kept = {m.topic for m in peer.publishes()}
    assert kept == ({b"a/y", b"a/you", b"c/1"} if qos else set())
    group = gateway.connect("you", version)
    assert group.subscribe(("$share/g/#", 0)) == [0]
    put(gateway, *TOPICS)
    assert [m.topic for m in group.publishes()] == [b"a/y", b"a/me", b"c/1"]


def test_deliveries_follow_the_rules_as_they_are_changed(gateway: Gateway) -> None:
    authorizer = gateway.broker.authorizer
    authorizer.topic_guard = AclFile("topic #", "acl", "guest")
    sub = gateway.connect("s")
    sub.subscribe(("#", 0))
    for denied, brought in (("", [b"a", b"b"]), ("a", [b"b"]), ("b", [b"a"]), ("", [b"a", b"b"])):
        lines = "topic #" + (f"\npattern deny {denied}" if denied else "")
        authorizer.topic_guard = AclFile(lines, "acl", "guest")
        gateway.broker.rights_changed()
        put(gateway, "a", "b")
        assert [m.topic for m in sub.publishes()] == brought, lines
