"""Part of the OpenAPI document: what the log holds, found and shown."""

from __future__ import annotations

from penstock.protocols.http.data.log.search import SEARCH
from penstock.protocols.http.data.openapi.schemas import AGO, TEXT, TIME, Json, object_, ref, wholes
from penstock.protocols.http.data.openapi.words import operation, query
from penstock.protocols.http.shared.fields import Whole

__all__ = ["message", "replay", "search"]


def search() -> Json:
    """Messages of the past."""
    moment: Json = {
        "anyOf": [
            AGO,
            TIME,
            {"type": "string", "pattern": "^pos:[0-9]{1,19}$"},
            Whole(0, 0, 2**53 - 1).schema(),
        ]
    }
    name: Json = {"type": "string", "minLength": 1, "maxLength": 255}
    value: Json = {"type": ["string", "number", "boolean", "null"], "description": "null: whichever."}
    answer = object_(
        {
            "messages": {"type": "array", "items": ref("Message")},
            "count": {"type": "integer", "description": "Instead of messages."},
            "progress": {"type": "number", "description": "0 to 1, of all that is to be searched."},
            "scanned_bytes": {"type": "integer"},
            "reached": {"type": ["integer", "null"], "description": "The time it came to, ms since 1970."},
            "damaged": {"type": "integer", "description": "Batches that could not be read."},
            "cursor": {"type": "string", "description": "Goes on from there; missing at the end."},
        },
        *("progress", "scanned_bytes", "damaged"),
    )
    counted: Json = {"properties": {"count": {"const": True}}}
    either = (("routing_key", "topic"), ("exchange", "topic"), ("queue", "stream"))
    asked = object_(
        {
            "from": moment,
            "to": moment,
            "exchange": TEXT,
            "routing_key": {**TEXT, "description": "A pattern with * and #; not with topic."},
            "topic": {**TEXT, "description": "A topic filter of MQTT; not with routing_key."},
            "queue": TEXT,
            "stream": {**TEXT, "description": "Not with queue."},
            "headers": {"type": "object", "propertyNames": name, "additionalProperties": value},
            "message_id": name,
            "correlation_id": name,
            "body": object_({"contains": TEXT}, closed=True),
            "count": {"type": "boolean", "default": False, "description": "Without headers and ids."},
            **wholes(SEARCH),
            "cursor": {"type": "string", "pattern": "^[0-9]{1,19}:[0-9]{1,19}:[0-9]{1,19}$"},
        },
        closed=True,
    )
    exact = [{**counted, "required": ["count", name]} for name in ("headers", "message_id", "correlation_id")]
    asked["not"] = {"anyOf": [*({"required": list(names)} for names in either), *exact]}
    return operation("Find messages in the log, oldest first.", {200: answer}, body=asked, optional=True)


def message() -> Json:
    """One message, and its path."""
    noted = object_(
        {
            "at": {"type": "integer", "description": "Milliseconds since the epoch."},
            "kind": TEXT,
            "queue": TEXT,
            "detail": {**TEXT, "description": "Of publish the protocol, else why."},
            "redelivered": {"type": "boolean"},
            "connection": {**TEXT, "description": "For the tags administrator and monitoring."},
            "user": {**TEXT, "description": "For the same, and for the user itself."},
        },
        "at",
        "kind",
        "queue",
        "detail",
    )
    place = object_(
        {
            "name": TEXT,
            "kind": {"enum": ["queue", "session", "share", "subscription", "stream"]},
            "state": {"enum": ["ready", "out", "done", "kept"]},
        },
        "name",
        "kind",
        "state",
    )
    answer = object_(
        {
            "message": ref("Message"),
            "publisher": {"anyOf": [noted, {"type": "null"}]},
            "places": {"type": "array", "items": place},
            "events": {"type": "array", "items": noted},
            "attempts": {"type": "array", "items": {"type": "object"}},
            "recorded": {"type": "array", "items": TEXT, "description": "Kinds of events that are kept now."},
            "cursor": {**TEXT, "description": "Goes on with what happened later; missing at the end."},
        },
        *("events", "attempts", "recorded"),
    )
    id = {"type": "string", "pattern": "^0:[0-9]{1,19}$"}
    return operation(
        "One message of the log, by its id, and its path.",
        {200: answer},
        parameters=[
            query("queue", TEXT, "For who may read this queue, and not the exchange."),
            query("cursor", id, "As the answer before had it."),
        ],
    )


def replay() -> Json:
    """Messages of the past into a new queue."""
    moment: Json = {"anyOf": [AGO, TIME, {"type": "string", "pattern": "^pos:[0-9]{1,19}$"}]}
    by_exchange = object_(
        {"exchange": TEXT, "routing_key": TEXT, "from": moment}, "exchange", "from", closed=True
    )
    by_topic = object_({"topic": TEXT, "from": moment}, "topic", "from", closed=True)
    return operation(
        "Make a queue of what an exchange got since then.",
        {201: object_({"queue": TEXT, "ready": {"type": "integer"}}, "queue", "ready")},
        body={"oneOf": [by_exchange, by_topic]},
    )
