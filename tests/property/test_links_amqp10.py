"""Additions of shovels to messages of AMQP 1.0: nothing else changes, wherever the message came from."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.amqp10.codec.values import Symbol, Timestamp, UInt
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.links.amqp.settings import Destination
from penstock.protocols.links.amqp10._messages import Messages
from penstock.protocols.links.amqp10.adding import Addition

_TEXTS = st.text("ab", max_size=3)
_TABLES = st.dictionaries(_TEXTS, _TEXTS, max_size=3)
_BODIES = st.one_of(
    st.binary(max_size=9).map(lambda data: s.encode_section(s.DATA, data)),
    st.lists(st.binary(max_size=3), min_size=2, max_size=3).map(
        lambda parts: b"".join(s.encode_section(s.DATA, part) for part in parts)
    ),
    st.just(s.encode_section(s.VALUE, [None, "x"])),
)
_PROPERTIES = st.dictionaries(
    st.sampled_from(["message_id", "subject", "content_type", "group_id", "user_id"]), _TEXTS
)


def symbols(table: dict[str, str]) -> dict[Any, Any]:
    return {Symbol(name): value for name, value in table.items()}


@given(
    st.booleans(),
    _TABLES,
    st.lists(_TEXTS, max_size=4),
    _TABLES,
    _BODIES,
    st.booleans(),
    _PROPERTIES,
    _TABLES,
    _TABLES,
)
def test_only_what_is_set_is_another(
    has_header: bool,
    annotations: dict[str, str],
    properties: list[str],
    application: dict[str, str],
    body: bytes,
    has_more: bool,
    set_properties: dict[str, str],
    set_annotations: dict[str, str],
    set_application: dict[str, str],
) -> None:
    header = s.encode_section(s.HEADER, [True, None, UInt(5)]) if has_header else b""
    ours = s.encode_section(s.DELIVERY_ANNOTATIONS, symbols({"hop": "1"})) if has_more else b""
    footer = s.encode_section(s.FOOTER, symbols({"sum": "1"})) if has_more else b""
    middle = s.encode_section(s.ANNOTATIONS, symbols(annotations))
    middle += s.encode_section(s.PROPERTIES, properties)
    middle += s.encode_section(s.APPLICATION_PROPERTIES, application)
    destination = Destination(
        uris=(),
        properties=set_properties,
        annotations=set_annotations,
        application_properties=set_application,
    )
    add, messages = Addition(destination, {}), Messages()
    messages.append(header + ours + middle + body + footer)
    messages.change(add, every=add.adds)
    made = messages.pop()
    if not (set_properties or set_annotations or set_application):
        assert made == header + middle + body + footer
        return
    found = s.parse_message(made)
    assert found.raw.get(s.HEADER, b"") == header and found.raw.get(s.FOOTER, b"") == footer
    assert s.DELIVERY_ANNOTATIONS not in found.raw and found.body == body
    assert found.annotations == annotations | set_annotations
    assert found.application_properties == application | set_application
    fields = dict(zip(s.PROPERTY_NAMES, found.properties, strict=False))
    for at, name in enumerate(s.PROPERTY_NAMES):
        before = properties[at] if at < len(properties) else None
        wanted = set_properties.get(name.replace("-", "_"), before)
        expected = wanted.encode() if name == "user-id" and "user_id" in set_properties and wanted else wanted
        assert (fields.get(name) or None) == (expected or None)


def test_a_message_gets_its_time_and_its_shovel() -> None:
    destination = Destination(uris=(), timestamp_header=True)
    made = Addition(destination, {"shovel-name": "s"})(s.encode_section(s.DATA, b"x"))
    found = s.parse_message(made)
    assert found.application_properties == {"shovel-name": "s"} and found.data == b"x"
    created = found.properties[s.PROPERTY_NAMES.index("creation-time")]
    assert type(created) is Timestamp and created > 1_700_000_000_000
