"""The parts of a move from RabbitMQ that need no broker: headers, reasons, choices, texts."""

from __future__ import annotations

import re
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.header import ContentHeader

from penstock.cli import main
from penstock.migrate.rabbitmq.definitions import for_rabbitmq, say_ineffective, without_links
from penstock.migrate.rabbitmq.queues import Queue, choose
from penstock.migrate.rabbitmq.reasons import EFFECTLESS_REASONS
from penstock.migrate.report import Place, Report
from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.router.policies.definitions import EFFECTLESS

NAMES = st.sampled_from(["CC", "BCC", "a", "cc", "xCC"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31)
    | st.text(max_size=5)
    | st.binary(max_size=5).map(bytearray),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=6,
)


def header(headers: dict[str, Any], **more: Any) -> bytes:
    properties = commands.Basic.Properties(headers=headers, **more)
    return pamqp.frame.marshal(ContentHeader(0, 3, properties), 1)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from([{}, {"content_type": "\x02CC"}]))
def test_only_the_names_that_route_copies_change(headers: dict[str, Any], more: dict[str, str]) -> None:
    if "cc" in headers and "CC" in headers:
        del headers["cc"]
    wanted = {{"CC": "cc", "BCC": "bcc"}.get(name, name): value for name, value in headers.items()}
    change = HeaderEdit(frame_max=1 << 17, end="target", lowers_copies=True)
    frame = change.changed(header(headers, **more), False)
    assert frame is not None
    made = pamqp.frame.unmarshal(frame)[2]
    assert isinstance(made, ContentHeader)
    before = pamqp.frame.unmarshal(header(wanted, **more))[2]
    assert isinstance(before, ContentHeader)
    assert dict(made.properties) == dict(before.properties)


def test_each_key_without_effect_has_a_reason() -> None:
    assert EFFECTLESS_REASONS.keys() == EFFECTLESS


def test_queues_that_cannot_be_drained_are_said_when_they_have_messages() -> None:
    def queue(name: str, **more: Any) -> dict[str, Any]:
        return {"vhost": "/", "name": name, "durable": True, "messages": 2, "type": "classic", **more}

    chosen, left = choose(
        [
            queue("b"),
            queue("a", type="quorum"),
            queue("s", type="stream"),
            queue("t", durable=False),
            queue("quiet", durable=False, messages=0),
            queue("mqtt-subscription-cqos1"),
            queue("other"),
        ],
        re.compile("(?!other).*"),
    )
    assert chosen == [Queue("/", "a", 2), Queue("/", "b", 2)]
    assert [name for name, _ in left] == ["mqtt-subscription-cqos1", "s", "t"]


def test_shovels_and_upstreams_stay_where_they_are() -> None:
    report = Report()
    limits = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {}}
    shovel = {"vhost": "/", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://a:secret@h"}}
    upstream = {"vhost": "/", "component": "federation-upstream", "name": "f", "value": {"uri": "amqp://h"}}
    left = without_links({"parameters": [limits, shovel, upstream]}, Place("rabbitmq", 0), report)
    assert left == {"parameters": [limits]}
    assert [entry.text for entry in report.entries] == [
        "parameters: shovel vhost=/ name=s",
        "parameters: federation-upstream vhost=/ name=f",
    ]


def test_plug_ins_and_operator_policies_are_said() -> None:
    report = Report()
    definitions = {
        "parameters": [
            {"vhost": "/", "component": "other-plug-in", "name": "f", "value": {}},
            {
                "vhost": "/",
                "component": "operator_policy",
                "name": "o",
                # RabbitMQ 3.10 writes it as pairs.
                "value": {"definition": [["ha-mode", "all"]]},
            },
        ],
        "queues": [{"vhost": "/", "name": "mqtt-subscription-cqos1", "arguments": []}],
    }
    say_ineffective(definitions, Place("rabbitmq", 0), report)
    assert [entry.text.split(":")[0] for entry in report.entries] == [
        "operator policies",
        "parameters",
        "queues",
    ]
    assert {entry.fate for entry in report.entries} == {"left out"}


def test_rabbitmq_gets_only_what_it_knows() -> None:
    report = Report()
    ours = {
        "users": [
            {"name": "new", "password_hash": "x", "hashing_algorithm": "penstock_password_hashing_scrypt"},
            {"name": "old", "password_hash": "y", "hashing_algorithm": "rabbit_password_hashing_sha256"},
        ],
        "permissions": [{"user": "new", "vhost": "/"}, {"user": "old", "vhost": "/"}],
        "policies": [
            {"vhost": "/", "name": "p", "definition": {"max-length": 1, "cleanup": "compact"}},
            {"vhost": "/", "name": "q", "definition": {"cleanup": "compact"}},
        ],
        "mqtt_sessions": [{"vhost": "/", "client_id": "c"}],
        "webhooks": [],
    }
    sent = for_rabbitmq(ours, {"users": []}, Place("penstock", 0), report)
    assert [user["name"] for user in sent["users"]] == ["old"]
    assert sent["permissions"] == [{"user": "old", "vhost": "/"}]
    assert sent["policies"] == [{"vhost": "/", "name": "p", "definition": {"max-length": 1}}]
    assert "mqtt_sessions" not in sent and "webhooks" not in sent
    left = [entry.text for entry in report.entries if entry.fate == "left out"]
    assert left == [
        "mqtt_sessions: vhost=/ client_id=c",
        "users: name=new",
        "policies: vhost=/ name=p: cleanup",
        "policies: vhost=/ name=q: cleanup",
    ]


def test_a_rabbitmq_that_never_answered_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.migrate.shared.time.sleep", lambda seconds: pytest.fail("it waits"))
    assert main(["migrate", "rabbitmq", "http://127.0.0.1:9"]) == 1
    assert "rabbitmq_management" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("conf", "mosquitto"):
        assert main(["migrate", verb, "/nowhere"]) == 1
        assert "error: /nowhere cannot be read: No such file or directory; name a " in capsys.readouterr().err
