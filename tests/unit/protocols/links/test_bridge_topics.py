"""Topics of a bridge: Mosquitto's lines, which topics cross, and their names on the other side."""

from __future__ import annotations

import pytest

from penstock.config.bridges import Bridge, Bridges, Topic
from penstock.config.kinds import BadValue
from penstock.protocols.links.mqtt.topics import mapping, matches


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("a/#", Topic("a/#")),
        ("a/# in", Topic("a/#", "in")),
        ("a/+ both 2", Topic("a/+", "both", 2)),
        ("# out 1 here/", Topic("#", "out", 1, "here/")),
        ('# in 1 "" there/', Topic("#", "in", 1, "", "there/")),
        ('"" out 0 one two', Topic("", "out", 0, "one", "two")),
        ('"a b" out', Topic("a b", "out")),
    ],
)
def test_a_line_is_read(text: str, topic: Topic) -> None:
    assert Topic.parse(text) == topic


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a up",
        "a out 3",
        "a out x",
        "a#",
        "#/a",
        "a+/b",
        'a out 0 "x',
        "a out 0 +/ b",
        '""',
        "a out 0 b c d",
    ],
)
def test_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        Topic.parse(text)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_match_as_in_mqtt(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_topics_get_their_name_on_the_other_side() -> None:
    topics = [
        Topic("sensors/#", "out", 1, "plant/", "far/"),
        Topic("set/+", "in", 1, "plant/", "far/"),
        Topic("#", "both", 0, "shared/", ""),
    ]
    out, into = mapping(topics, "out"), mapping(topics, "in")
    assert out("plant/sensors/1/t") == "far/sensors/1/t"
    assert out("shared/x") == "x"
    assert out("plant/set/1") is None
    assert into("far/set/1") == "plant/set/1"
    assert into("x") == "shared/x"
    assert mapping([Topic("", "out", 0, "one", "two")], "out")("one") == "two"


def test_a_bridge_is_read_and_written() -> None:
    kind = Bridges()
    text = (
        '[{name = "b", address = "h:1883", topics = ["# out 1 \\"\\" x/"], tls = true, restart_timeout = 9}]'
    )
    (made,) = kind.from_text(text)
    topics = (Topic("#", "out", 1, "", "x/"),)
    assert made == Bridge(name="b", address="h:1883", topics=topics, tls=True, restart_timeout=9)
    assert kind.from_text(kind.toml((made,))) == (made,)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": ""}, "needs a name"),
        ({"address": "h"}, "no port"),
        ({"topics": []}, "needs a list of topics"),
        ({"color": "x"}, "has no 'color'"),
        ({"tls": "yes"}, "tls of the bridge 'b' is no bool"),
        ({"protocol_version": "mqttv6"}, "protocol_version of the bridge 'b' cannot be so"),
        ({"keepalive_interval": 1}, "keepalive_interval"),
        ({"notification_topic": "a/#"}, "notification_topic"),
    ],
)
def test_mistakes_of_a_bridge_are_told(change: dict[str, object], told: str) -> None:
    with pytest.raises(BadValue, match=told):
        Bridges().from_value([{"name": "b", "address": "h:1883", "topics": ["#"], **change}])
