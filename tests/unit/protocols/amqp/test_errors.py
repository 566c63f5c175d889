"""Every error of the layers below has an answer, and the answers are RabbitMQ's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.errors import LogError, PenstockError, RoutingError, SubscriptionError
from penstock.protocols.amqp.codec import errors
from penstock.protocols.amqp.codec.errors import AmqpError, answer, erlang, frame_fault, soft, type_name
from penstock.protocols.properties._tables import decode_table
from penstock.router import errors as router
from penstock.subscriptions import errors as subscriptions
from penstock.subscriptions.errors import ConsumerRefused


def subclasses(kind: type) -> set[type]:
    found = {kind}
    for child in kind.__subclasses__():
        found |= subclasses(child)
    return found


def test_the_table_is_total_over_the_layers_below() -> None:
    for layer, kind in ((router, RoutingError), (subscriptions, SubscriptionError)):
        named = {
            value for value in vars(layer).values() if isinstance(value, type) and issubclass(value, kind)
        }
        assert named, "the layer has errors"
        for error in named:
            assert error in errors._ANSWERS, f"{error.__name__} has no answer of its own"
    for kind in subclasses(LogError) | subclasses(SubscriptionError) | subclasses(RoutingError):
        assert any(parent in errors._ANSWERS for parent in kind.__mro__), kind


def test_an_unknown_error_is_an_internal_one() -> None:
    told = answer(PenstockError("surprise"))
    assert (told.code, told.hard, told.reply_text) == (541, True, "INTERNAL_ERROR")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (router.NotFound("queue", "q", "/"), 404, "NOT_FOUND - no queue 'q' in vhost '/'"),
        (router.NotFound("vhost", "v", "v"), 530, "NOT_ALLOWED - vhost v not found"),
        (
            router.InvalidBinding("key_no_integer", "x"),
            406,
            'PRECONDITION_FAILED - The binding key must be an integer: <<"x">>',
        ),
        (
            router.InvalidBinding("key_not_positive", "0"),
            406,
            "PRECONDITION_FAILED - The binding key must be greater than 0",
        ),
        (
            router.InvalidBinding("key_not_empty", "k"),
            406,
            "PRECONDITION_FAILED - Non empty binding 'k' key not permitted",
        ),
        (
            router.InvalidBinding("queue_type", "quorum"),
            406,
            "PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type",
        ),
        (
            router.InvalidHash(None),
            406,
            "PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive",
        ),
        (
            router.InvalidLength("x-length", "many"),
            406,
            "PRECONDITION_FAILED - Invalid argument <<\"many\">>, 'x-length' must be a positive integer",
        ),
        (router.InvalidHash("x"), 406, "PRECONDITION_FAILED - Unsupported property: x"),
        (
            router.InvalidMatch(5),
            406,
            "PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr",
        ),
        (
            router.AccessRefused("exchange", "x", "/", "u", "write"),
            403,
            "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'",
        ),
        (
            router.AccessRefused("vhost", "v", "v", "u", "read"),
            530,
            "NOT_ALLOWED - access to vhost 'v' refused for user 'u'",
        ),
        (
            router.Inequivalent("queue", "q", "/", "x-expires", 5, None),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'x-expires' for queue 'q' in vhost '/': received the "
            "value '5' of type 'signedint' but current is none",
        ),
        (
            router.Inequivalent("queue", "q", "/", "x-overflow", None, "drop-head"),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'x-overflow' for queue 'q' in vhost '/': received none "
            "but current is the value 'drop-head' of type 'longstr'",
        ),
        (
            router.Inequivalent("exchange", "x", "/", "durable", True, False),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'true' "
            "but current is 'false'",
        ),
        (
            router.InvalidArgument("queue", "q", "/", "x-expires", 0, "value_zero"),
            406,
            "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}",
        ),
        (ConsumerRefused("queue 'q' is taken"), 403, "ACCESS_REFUSED - queue 'q' is taken"),
        (LogError("the disk is full"), 541, "INTERNAL_ERROR - the disk is full"),
    ],
)
def test_words(error: PenstockError, code: int, text: str) -> None:
    told = answer(error)
    assert (told.code, told.reply_text) == (code, text)
    assert told.hard == (code >= 500)


def test_an_answer_is_kept() -> None:
    error = soft(406, "as it is")
    assert answer(error) is error


def test_a_reply_text_fits_a_short_string() -> None:
    text = soft(404, "ü" * 300).reply_text
    assert len(text.encode()) <= 255
    assert text.startswith("NOT_FOUND - üü")


@pytest.mark.parametrize(
    "name",
    [
        "frame_too_large",
        "invalid_frame_end_marker",
        "unknown_frame",
        "heartbeat",
        "no_method",
        "no_header",
        "no_body",
        "header_class",
        "immediate",
        "body_too_large",
        "too_much_held",
        "settle",
        "publish",
        "header",
        "properties",
    ],
)
def test_every_fault_ends_the_connection(name: str) -> None:
    error = frame_fault(name, 1, b"abc", 80, 131072)
    assert isinstance(error, AmqpError) and error.hard
    assert error.reply_text


def test_the_kernel_knows_no_other_faults() -> None:
    """The names in the scanner's source are those of the table."""
    source = (Path(__file__).parents[4] / "protocols" / "amqp" / "codec" / "_codec.pyx").read_text()
    for name in re.findall(r'"([a-z_]+)"', source):
        frame_fault(name, 1, b"", 80, 131072)


def test_octets_are_shown_as_erlang_shows_them() -> None:
    assert erlang(b"") == "<<>>"
    assert erlang(b"abc") == '<<"abc">>'
    assert erlang(b"\x00\x14") == "<<0,20>>"
    assert erlang(b'a"b') == "<<97,34,98>>"


def test_field_types_have_rabbitmqs_names() -> None:
    fields = {
        b"t\x01": "bool",
        b"b\xfb": "byte",
        b"B\x05": "unsignedbyte",
        b"s\xff\xfb": "short",
        b"u\x00\x05": "unsignedshort",
        b"I" + bytes(4): "signedint",
        b"i" + bytes(4): "unsignedint",
        b"l" + bytes(8): "long",
        b"L" + bytes(8): "long",
        b"d" + bytes(8): "double",
        b"D" + bytes(5): "decimal",
        b"T" + bytes(8): "timestamp",
        b"S" + bytes(4): "longstr",
        b"x" + bytes(4): "binary",
        b"A" + bytes(4): "array",
        b"F" + bytes(4): "table",
        b"V": "void",
    }
    for field, name in fields.items():
        entry = b"\x01a" + field
        table = decode_table(len(entry).to_bytes(4, "big") + entry)
        assert type_name(table["a"]) == name
    assert type_name(2**40) == "long"
