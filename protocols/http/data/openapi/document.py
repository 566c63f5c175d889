"""GET /openapi.json: what the data plane takes and answers, as OpenAPI 3.1, for people and for generators.

Bounds of numbers and lists of choices are those by which the handlers check. The rest is written here; a test
holds it to the routes there are, and requests made from it find what it does not say (schemathesis).
"""

from __future__ import annotations

from penstock import __version__
from penstock.protocols.http.data.openapi.log import message, replay, search
from penstock.protocols.http.data.openapi.pull import peek, pulled, queues, redrive, streams
from penstock.protocols.http.data.openapi.schemas import (
    AGO,
    FILTER,
    TEXT,
    TIME,
    Json,
    object_,
    ref,
    schemas,
)
from penstock.protocols.http.data.openapi.units import numbers, txn, units
from penstock.protocols.http.data.openapi.webhooks import webhooks
from penstock.protocols.http.data.openapi.words import listed, operation, query
from penstock.protocols.http.data.publishing.publish import ACKS
from penstock.protocols.http.data.pulling.reader import BYTES, MAX, WAIT_MS
from penstock.protocols.http.data.tokens import TTL_S

__all__ = ["document"]


def document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock data plane",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Publish, pull and read messages, and manage webhooks; see docs/reference/.",
        },
        "security": [{"basic": []}, {"bearer": []}],
        "paths": {
            **{
                f"/v1/vhosts/{{vhost}}{path}": _named(f"{{vhost}}{path}", item)
                for path, item in _paths().items()
            },
            **{f"/v1{path}": _named(path, item) for path, item in _tokens().items()},
        },
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of POST /v1/tokens."},
            },
            "schemas": schemas(),
        },
    }


def _named(path: str, item: Json) -> Json:
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    return {"parameters": parameters, **item}


def _paths() -> Json:
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 255, "pattern": "^[!-~]*$"},
        "description": "The request happens once, however often it is sent.",
    }
    last_event = {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": {"type": "string"},
        "description": "Begin behind this event.",
    }
    since = query("from", {"type": "string", "default": "next"}, "first, next, pos:N, a time or -1h.")
    once = [key, *numbers(), txn()]
    acks = query("ack", {"enum": list(ACKS), "default": "fsync"}, "What is waited for.")
    mandatory = query("mandatory", {"enum": ["true", "false"]}, "Refuse what goes to no queue.")
    published = {200: ref("Results"), 202: ref("Results"), 207: ref("Results")}
    events = {
        "application/x-ndjson": {"type": "string"},
        "application/cloudevents+json": ref("Event"),
        "application/cloudevents-batch+json": {"type": "array", "items": ref("Event")},
    }
    many = {
        "anyOf": [
            object_({"messages": {"type": "array", "items": ref("Publish")}}, "messages"),
            ref("Publish"),
        ]
    }
    routing_key = query("routing_key", TEXT, "Of messages without one.")
    begin = {
        "anyOf": [{"enum": ["first", "next"]}, {"type": "string", "pattern": "^[0-9]{1,15}$"}, AGO, TIME]
    }
    read = [
        query("from", {**begin, "default": "first"}, "first, next, an offset, a time or -1h."),
        query("max", MAX.schema(), "Messages at most."),
        query("max_bytes", BYTES.schema(), "Of bodies; one message comes whatever its size."),
        query("wait_ms", WAIT_MS.schema(), "How long the first one is waited for."),
    ]
    queue = "/queues/{queue}"
    return {
        "/exchanges/{exchange}/messages": {
            "post": operation(
                "Publish through an exchange.",
                published,
                body=many,
                kinds=events,
                parameters=[acks, mandatory, routing_key, *once],
            )
        },
        "/exchanges/{exchange}/tail": {
            "get": operation(
                "What passes an exchange from now on, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[
                    query(
                        "pattern",
                        {"type": "string", "default": "#"},
                        "A binding key; of amq.default a pattern of routing keys with * and #.",
                    ),
                    since,
                    last_event,
                ],
                media="text/event-stream",
            )
        },
        f"{queue}/messages": {
            "post": operation(
                "Publish into a queue.",
                published,
                body=many,
                kinds=events,
                parameters=[acks, mandatory, *once],
            )
        },
        "/mqtt/messages": {
            "post": operation(
                "Publish to an MQTT topic, as a client of MQTT 5 does.",
                published,
                body=many,
                kinds=events,
                parameters=[
                    query(
                        "topic",
                        {"type": "string", "pattern": r"^[^\x00+#]+$"},
                        "Without wildcards.",
                        required=True,
                    ),
                    query("qos", {"enum": ["0", "1", "2"], "default": "1"}, "0: not for who is away."),
                    query("retain", {"enum": ["true", "false"]}, "It becomes the retained message."),
                    acks,
                    mandatory,
                    *once,
                ],
            )
        },
        **queues(),
        **pulled(queue),
        f"{queue}/redrive": {"post": redrive()},
        f"{queue}/peek": {"post": peek()},
        **units(key),
        f"{queue}/replay": {"post": replay()},
        "/log/search": {"post": search()},
        "/log/messages/{message}": {"get": message()},
        "/tail": {
            "get": operation(
                "Messages to MQTT topics or to a queue, or events of the gateway, as server-sent events. "
                "One of topic, queue and events is needed.",
                {200: {"type": "string"}},
                parameters=[
                    query("topic", FILTER, "A topic filter."),
                    query("queue", {"type": "string", "minLength": 1}, "A queue, which loses nothing by it."),
                    query("events", {"type": "string", "pattern": "^[a-z]+(,[a-z]+)*$"}, "log, webhooks."),
                    since,
                    last_event,
                ],
                media="text/event-stream",
            )
        },
        "/ws": {
            "get": operation(
                "A WebSocket for publishing, consuming and tails; docs/reference/http.md has what it says.",
                {101: None},
            )
        },
        "/mqtt": {
            "get": operation(
                "MQTT over a WebSocket, with the login of this request; docs/reference/http.md says how.",
                {101: None},
            )
        },
        **streams(
            operation("Publish into a stream.", published, body=many, kinds=events, parameters=[acks, *once]),
            operation("Read a stream.", {200: ref("Read")}, parameters=read),
            operation(
                "What a stream gets, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[
                    query("from", {"type": "string", "default": "next"}, "As for reading."),
                    last_event,
                ],
                media="text/event-stream",
            ),
        ),
        **webhooks(read),
    }


def _tokens() -> Json:
    user = query("user", TEXT, "Another user's: for administrators.")
    token = object_(
        {"name": TEXT, "user": TEXT, "made_at": {"type": "integer"}, "expires_at": {"type": "integer"}},
        "name",
        "user",
        "expires_at",
    )
    made = {**token, "properties": {**token["properties"], "token": TEXT}}
    return {
        "/tokens": {
            "get": listed("Those that are good.", "tokens", token, user),
            "post": operation(
                "Make one; it is shown now and never again.",
                {201: made},
                body=object_(
                    {
                        "name": {"type": "string", "minLength": 1, "maxLength": 100},
                        "ttl_s": TTL_S.schema(),
                        "user": {"type": "string", "description": "Another user: for administrators."},
                    },
                    "name",
                    closed=True,
                ),
            ),
        },
        "/tokens/{token}": {"delete": operation("End it.", {204: None}, parameters=[user])},
    }
