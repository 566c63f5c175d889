"""Selectors: what they say of a message, what is refused, and what they may cost."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.filters.errors import SelectorError
from penstock.protocols.amqp10.filters.lexer import LENGTH_MAX
from penstock.protocols.amqp10.filters.parser import parse_selector
from penstock.protocols.amqp10.messages.sections import Message

MESSAGE = Message(
    header=[True, v.UByte(7), None, False, v.UInt(2)],
    annotations={v.Symbol("x-opt-a"): "noted", v.Symbol("plain"): 1},
    properties=[
        UUID(int=1),
        b"John",
        "orders",
        "Order 5",
        None,
        v.ULong(12345),
        v.Symbol("text/plain"),
        None,
        v.Timestamp(2_000_000),
        v.Timestamp(1_000),
        "group",
        v.UInt(6),
    ],
    application_properties={
        "n": v.Int(5),
        "f": v.Float(2.5),
        "t": True,
        "no": False,
        "s": "banana",
        "quote": "It's",
        "percent": "100%",
        "empty": "",
        "order-status": "new",
        "order.status": "old",
        "list": [1],
        "decimal": v.Decimal(b"1234"),
        "bytes": b"\x01\x02",
        "none": None,
    },
)


def says(text: str) -> bool | None:
    found = parse_selector(text, (1_000_000).__int__).value(MESSAGE)
    assert found is None or isinstance(found, bool)
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # comparisons
        ("n = 5", True),
        ("n=5.0 AND n = 5L", True),
        ("n <> 5", False),
        ("n != 6", True),
        ("n > 4 and n >= 5 And n < 6 AND n <= 5", True),
        ("f = 2.5", True),
        ("s = 'banana'", True),
        ('s = "banana"', True),
        ("s > 'apple'", True),
        ("quote = 'It''s'", True),
        ("t = TRUE", True),
        ("t", True),
        ("NOT no", True),
        ("t > no", False),
        ("t = 1", False),
        ("n = '5'", False),
        ("NOT (n = '5')", True),
        ("bytes = 0x0102", True),
        ("absent = 5", None),
        ("NOT (absent = 5)", None),
        ("none = none", None),
        ("list = 1", None),
        ("decimal = 1", None),
        ("n", None),
        ("'text'", None),
        # three values
        ("absent = 1 AND no", False),
        ("absent = 1 AND t", None),
        ("absent = 1 OR t", True),
        ("absent = 1 OR no", None),
        ("t OR no AND no", True),
        ("(t OR no) AND no", False),
        ("NOT NOT t", True),
        # arithmetic
        ("n + 1 = 6", True),
        ("n - 1 - 1 = 3", True),
        ("2 + 3 * 2 = 8", True),
        ("(2 + 3) * 2 = 10", True),
        ("-n = -5 AND +n = 5 AND - -n = 5", True),
        ("n / 2 = 2", True),
        ("-n / 2 = -2", True),
        ("n / 2.0 = 2.5", True),
        ("n % 3 = 2", True),
        ("-n % 3 = -2", True),
        ("n % 2.5 = 0", None),
        ("n / 0 = 1", None),
        ("n % 0 = 1", None),
        ("f / 0 = 1", None),
        ("s + 1 = 2", None),
        ("t + 1 = 2", None),
        (f"{'9' * 40} * 1.5 > 1", True),
        ("1E6 = 1000000 AND 1.5e-1 = .15 AND 2. = 2", True),
        # BETWEEN, IN, IS NULL
        ("n BETWEEN 5 AND 6", True),
        ("n NOT BETWEEN 1 AND 4", True),
        ("n BETWEEN 6 AND absent", False),
        ("n BETWEEN 1 AND absent", None),
        ("n BETWEEN 1 AND 4 OR t", True),
        ("s IN ('apple', 'banana')", True),
        ("s NOT IN ('apple', 'banana')", False),
        ("n IN (1, 2 + 3)", True),
        ("absent IN ('a')", None),
        ("n IN (1, absent)", None),
        ("absent IS NULL", True),
        ("none IS NULL", True),
        ("n IS NOT NULL", True),
        # LIKE
        ("s LIKE 'ban%'", True),
        ("s LIKE '%ana'", True),
        ("s LIKE 'b%n%n%'", True),
        ("s LIKE 'b_n_n_'", True),
        ("s LIKE '%_nana'", True),
        ("s LIKE '%banana%'", True),
        ("s LIKE 'banan'", False),
        ("s LIKE '%bananas'", False),
        ("s LIKE 'ba%banana'", False),
        ("s NOT LIKE 'b%'", False),
        ("s LIKE '.*'", False),
        ("empty LIKE '%' AND empty LIKE ''", True),
        ("percent LIKE '100|%' ESCAPE '|'", True),
        ("s LIKE 'b|%' ESCAPE '|'", False),
        ("n LIKE '5'", False),
        ("absent LIKE '%'", None),
        # identifiers
        ("header.priority = 7 AND h.durable", True),
        ("p.user_id = 'John' AND properties.user_id = 0x4A6F686E", True),
        ("p.to = 'orders' AND p.subject LIKE 'Order%'", True),
        ("p.reply_to IS NULL AND p.reply_to_group_id IS NULL", True),
        ("p.correlation_id = 12345", True),
        ("p.content_type = 'text/plain'", True),
        ("p.absolute_expiry_time > UTC() AND UTC() = 1000000", True),
        ("p.group_sequence % 3 = 0", True),
        ("a.n = 5 AND application_properties.n = 5", True),
        ("[order-status] = 'new' AND a.[order-status] = 'new'", True),
        ("order.status = 'old'", True),
        ("m.[x-opt-a] = 'noted' AND message_annotations.plain = 1", True),
        ("utc IS NULL", True),
        ("JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT'", True),
        ("JMSMessageID = 'ID:AMQP_UUID:00000000-0000-0000-0000-000000000001'", True),
        ("JMSCorrelationID = 12345 AND JMSTimestamp = 1000 AND JMSExpiration = 2000000", True),
        ("JMSType = 'Order 5' AND JMSXGroupID = 'group' AND JMSXGroupSeq = 6", True),
        ("JMSXUserID = 'John' AND JMSXDeliveryCount = 3", True),
    ],
)
def test_a_selector_says(text: str, said: bool | None) -> None:
    assert says(text) is said


def test_a_message_without_a_header_has_the_defaults() -> None:
    selector = parse_selector(
        "JMSPriority = 4 AND h.priority = 4 AND NOT h.durable AND JMSDeliveryMode = 'NON_PERSISTENT' "
        "AND JMSXDeliveryCount = 1 AND JMSMessageID IS NULL",
        int,
    )
    assert selector.value(Message()) is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the end at character 1"),
        ("n =", "the end"),
        ("n = 5 5", "5 at character 7"),
        ("n = = 5", "'='"),
        ("n = 5 = 5", "wants the end"),
        ("(n = 5", r"wants '\)'"),
        ("n NOT 5", "BETWEEN, IN or LIKE"),
        ("n IS 5", "NULL"),
        ("n BETWEEN 1 OR 2", "AND"),
        ("n IN ()", "a value"),
        ("n IN (1", r"'\)'"),
        ("s LIKE n", "a text in quotes"),
        ("s LIKE 'a' ESCAPE 'ab'", "one character"),
        ("s LIKE 'a!' ESCAPE '!'", "ends with its escape"),
        ("AND", "'AND'"),
        ("n = 'open", "no word"),
        ("n = 5x", "no word"),
        ("n = 0x123", "no word"),
        ("n ; 5", "no word"),
        ("a. = 5", "a name"),
        ("p.nothing = 5", "no field nothing"),
        ("h.color = 5", "no field color"),
        ("f.x = 5", "does not see"),
        ("n = " + "9" * 41, "40 digits"),
        ("n" * (LENGTH_MAX + 1), "characters"),
        ("(" * 33 + "t" + ")" * 33, "nests"),
        ("NOT " * 33 + "t", "nests"),
        ("-" * 33 + "1 = 1", "nests"),
        (" OR ".join(["t"] * 300), "operations"),
        ("+".join("n" * 300) + " = 1", "operations"),
        (f"n IN ({','.join('1' * 600)})", "operations"),
    ],
)
def test_a_text_that_is_no_selector_is_refused(text: str, said: str) -> None:
    with pytest.raises(SelectorError, match=said):
        parse_selector(text, int)


def test_the_largest_selectors_are_taken() -> None:
    assert says("(" * 32 + "t" + ")" * 32) is True
    assert says(" OR ".join(["no"] * 250)) is False


def test_like_costs_no_more_than_the_lengths_of_text_and_pattern() -> None:
    """Patterns with which a search that goes back takes longer than the universe has been there."""
    message = Message(application_properties={"s": "a" * 65536, "long": "a" * 65537})
    pattern = "a%" * 200 + "b"
    assert parse_selector(f"s LIKE '{pattern}'", int).value(message) is False
    assert parse_selector(f"s LIKE '{'%_a' * 200}b'", int).value(message) is False
    assert parse_selector("long LIKE '%'", int).value(message) is None
