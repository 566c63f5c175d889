"""Settings of a webhook, formats of its requests, and what answers mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.traffic import Shown
from penstock.protocols.http.webhooks.client import Answer
from penstock.protocols.http.webhooks.delivery.formats import Outgoing, encode, id_of
from penstock.protocols.http.webhooks.delivery.receipts import receipt_of
from penstock.protocols.http.webhooks.endpoint import Outcome
from penstock.protocols.http.webhooks.settings import settings_of

LEAST: dict[str, Any] = {"source": {"queue": "q"}, "url": "https://h/"}


def test_settings_come_back_as_they_were_stored() -> None:
    full = {
        **LEAST,
        "source": {"exchange": "x", "routing_key": "a.#"},
        "headers": {"Authorization": "Bearer s3cret"},
        "format": "json",
        "batch": {"max_messages": 5},
        "retry": {"schedule_ms": [1, 2]},
    }
    settings = settings_of(full)
    assert settings_of(settings.stored()) == settings
    assert "s3cret" not in json.dumps(settings.shown())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"source": {}}, "source"),
        ({"source": {"queue": "q", "stream": "s"}}, "source"),
        ({"source": {"queue": ""}}, "source"),
        ({"url": 5}, "url"),
        ({"nonsense": 1}, "nonsense"),
        ({"method": "GET"}, "method"),
        ({"max_inflight": 0}, "max_inflight"),
        ({"batch": {"max_messages": 2}}, "batch.max_messages"),
        ({"retry": {"schedule_ms": [-1]}}, "retry.schedule_ms"),
        ({"retry": {"often": 1}}, "retry.often"),
        ({"headers": {"Host": "h"}}, "headers"),
        ({"headers": {"webhook-id": "h"}}, "headers"),
        ({"headers": {"a": "b\r\nc: d"}}, "headers.a"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"ordering_key": "body"}, "ordering_key"),
    ],
)
def test_a_mistake_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(HttpError) as raised:
        settings_of({**LEAST, **change})
    assert raised.value.code == "bad_field" and raised.value.detail.startswith(f"{field}:")


def outgoing(body: bytes = b"x", **properties: Any) -> Outgoing:
    return Outgoing(17, 1_700_000_000_000, "q", "/", Shown("x", "k.é", properties, body))


def test_an_id_is_the_messages_own_or_its_place() -> None:
    assert id_of(outgoing()) == "0:17"
    assert id_of(outgoing(message_id="m")) == "m"
    for bad in ("a.b", "a b", "é", "", "x" * 200):
        assert id_of(outgoing(message_id=bad)) == "0:17"


def test_a_plain_message_as_a_binary_event() -> None:
    headers, body = encode("cloudevents-binary", [outgoing(b"\xff", content_type="a/b", type='"q" 5%')])
    assert body == b"\xff" and headers["content-type"] == "a/b"
    assert headers["ce-id"] == "0:17" and headers["ce-source"] == "/vhosts/%252F/queues/q"
    assert headers["ce-subject"] == "k.%C3%A9" and headers["ce-type"] == "%22q%22%205%25"
    assert headers["ce-time"] == "2023-11-14T22:13:20.000Z"


def test_data_of_structured_events_is_json_text_or_base64() -> None:
    for body, kind, expected in (
        (b'{"a":1}', "application/json", {"data": {"a": 1}}),
        (b"{", "application/json", {"data_base64": "ew=="}),
        (b"text", "text/plain", {"data": "text"}),
        (b"\xff", "text/plain", {"data_base64": "/w=="}),
        (b"", "text/plain", {}),
    ):
        _, encoded = encode("cloudevents-structured", [outgoing(body, content_type=kind)])
        event = json.loads(encoded)
        assert {
            name: event[name] for name in event if name.startswith("data") and name != "datacontenttype"
        } == (expected)


def test_an_event_goes_out_as_it_came_with_its_trace() -> None:
    headers = {
        "cloudEvents:specversion": "1.0", "cloudEvents:id": "e", "cloudEvents:source": "/s",
        "cloudEvents:type": "t", "cloudEvents:shop": "n", "cloudEvents:Bad Name": "x",
        "cloudEvents:traceparent": "00-aa-bb-01",
    }  # fmt: skip
    sent, _ = encode("cloudevents-binary", [outgoing(headers=headers)])
    assert sent["ce-id"] == "e" and sent["ce-shop"] == "n" and "ce-subject" not in sent
    assert sent["traceparent"] == sent["ce-traceparent"] == "00-aa-bb-01"
    assert not any("bad" in name.lower() for name in sent)


def test_header_values_cannot_break_out() -> None:
    sent, _ = encode("raw", [outgoing(correlation_id="a\r\nx: y", headers={"h": "\n", "bad\r\nname": "1"})])
    assert sent["penstock-correlation-id"] == "a%0D%0Ax:%20y"
    assert not any("\r" in text or "\n" in text for pair in sent.items() for text in pair)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.DONE), (204, Outcome.DONE), (302, Outcome.FAILED), (400, Outcome.REFUSED),
        (404, Outcome.REFUSED), (408, Outcome.FAILED), (410, Outcome.GONE), (425, Outcome.FAILED),
        (429, Outcome.THROTTLED), (500, Outcome.FAILED), (503, Outcome.THROTTLED), (599, Outcome.FAILED),
    ],
)  # fmt: skip
def test_the_outcome_of_each_status(status: int, outcome: Outcome) -> None:
    assert receipt_of(Answer(status), 1, 0).outcome is outcome


def test_retry_after_is_seconds_or_a_date() -> None:
    def wait_s(text: str) -> float:
        return receipt_of(Answer(429, {"retry-after": text}), 1, 1_700_000_000).wait_s

    assert wait_s("17") == 17 and wait_s("Tue, 14 Nov 2023 22:13:30 GMT") == 10
    assert wait_s("Tue, 14 Nov 2000 22:13:30 GMT") == wait_s("soon") == wait_s("-5") == wait_s("9" * 40) == 0


def test_results_of_a_batch_count_only_when_they_are_for_all_of_it() -> None:
    body = b'{"results": [{"status": "ack"}, {"status": "retry"}, {"status": "reject"}]}'
    receipt = receipt_of(Answer(200, {}, body), 3, 0)
    assert (receipt.again, receipt.refused) == ({1}, {2})
    for count, other in ((2, body), (3, b"not json"), (3, b"[]"), (3, b'{"results": 5}')):
        assert receipt_of(Answer(200, {}, other), count, 0).again == frozenset()
