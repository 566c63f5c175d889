"""GET /openapi.json: what the data plane takes and answers, as OpenAPI 3.1, for people and for generators.

Written by hand beside the handlers; a test holds it to the routes there are, and requests made from it find
what it does not say (schemathesis). It needs no login: it says nothing that this page does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from penstock import __version__
from penstock.protocols.http.data.openapi_schemas import TEXT, Json, number, object_, ref, schemas
from penstock.protocols.http.messages import Request, Response, dumps

__all__ = ["PATHS", "document", "is_open", "serve"]

PATHS: Final = ("/openapi.json", "/v1/openapi.json")
_HANDLES: Final[Json] = {
    "type": "array",
    "maxItems": 10000,
    "items": {"type": "string"},
    "description": "As a pull gave them.",
}


def is_open(request: Request) -> bool:
    """Whether a request is for this document."""
    segments = request.segments
    return bool(segments) and segments[-1] == "openapi.json" and "/" + "/".join(segments) in PATHS


async def serve(request: Request) -> Response:
    """The document."""
    return Response(200, _encoded(), "application/vnd.oai.openapi+json;version=3.1")


@cache
def _encoded() -> bytes:
    return dumps(document())


def document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "penstock data plane",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Publish, pull and read messages; webhooks: docs/http.md, docs/webhooks.md.",
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


def _query(name: str, schema: Json, text: str, *, required: bool = False) -> Json:
    query = {"name": name, "in": "query", "schema": schema, "description": text}
    return {**query, "required": True} if required else query


def _operation(
    summary: str,
    answers: Mapping[int, Json | None],
    *,
    body: Json | None = None,
    kinds: dict[str, Json] | None = None,
    optional: bool = False,
    parameters: list[Json] | None = None,
    media: str = "application/json",
) -> Json:
    """`answers`: the schema of the body for each status; None: there is none."""
    problem = {"application/problem+json": {"schema": ref("Problem")}}
    responses: Json = {"default": {"description": "It was refused.", "content": problem}}
    for status, schema in answers.items():
        content = {media: {"schema": schema}} if schema is not None else None
        responses[str(status)] = {"description": "Done.", **({"content": content} if content else {})}
    operation: Json = {"summary": summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if body is not None or kinds is not None:
        content = {name: {"schema": schema} for name, schema in (kinds or {}).items()}
        if body is not None:
            content["application/json"] = {"schema": body}
        operation["requestBody"] = {"required": not optional, "content": content}
    return operation


def _half(to: str) -> Json:
    """What is prepared, for a queue or an exchange."""
    return object_(
        {
            to: TEXT,
            "message": ref("Publish"),
            "name": {"type": "string", "minLength": 1, "maxLength": 255},
            "ask": {"type": "string", "format": "uri", "maxLength": 2048},
            "check_after_ms": number(100, 86_400_000, 6000),
            "check_each_ms": number(100, 86_400_000, 30_000),
            "max_checks": number(1, 1000, 15),
            "expires_ms": number(100, 31_536_000_000, 259_200_000),
            "dead_letter": TEXT,
        },
        to,
        "message",
        closed=True,
    )


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
    acks = _query("ack", {"enum": ["fsync", "written", "none"], "default": "fsync"}, "What is waited for.")
    mandatory = _query("mandatory", {"enum": ["true", "false"]}, "Refuse what goes to no queue.")
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
    routing_key = _query("routing_key", TEXT, "Of messages without one.")
    read = [
        _query("from", {"type": "string", "default": "first"}, "first, next, an offset, a time or -1h."),
        _query("max", number(1, 1000, 100), "Messages at most."),
        _query("wait_ms", number(0, 60000, 0), "How long the first one is waited for."),
    ]
    queue = "/queues/{queue}"
    return {
        "/exchanges/{exchange}/messages": {
            "post": _operation(
                "Publish through an exchange.",
                published,
                body=many,
                kinds=events,
                parameters=[acks, mandatory, routing_key, key],
            )
        },
        "/exchanges/{exchange}/tail": {
            "get": _operation(
                "What passes an exchange from now on, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[
                    _query("pattern", {"type": "string", "default": "#"}, "A binding key."),
                    last_event,
                ],
                media="text/event-stream",
            )
        },
        f"{queue}/messages": {
            "post": _operation(
                "Publish into a queue.", published, body=many, kinds=events, parameters=[acks, mandatory, key]
            )
        },
        "/mqtt/messages": {
            "post": _operation(
                "Publish to an MQTT topic, as a client of MQTT 5 does.",
                published,
                body=many,
                kinds=events,
                parameters=[
                    _query("topic", {"type": "string", "minLength": 1}, "Without wildcards.", required=True),
                    _query("qos", {"enum": ["0", "1", "2"], "default": "1"}, "0: not for who is away."),
                    _query("retain", {"enum": ["true", "false"]}, "It becomes the retained message."),
                    acks,
                    mandatory,
                    key,
                ],
            )
        },
        **_pulled(queue),
        "/transactions": {
            "post": _operation(
                "Publish and acknowledge as one atomic unit.",
                {200: ref("Results")},
                body=object_(
                    {
                        "publish": {"type": "array", "maxItems": 1000, "items": {"type": "object"}},
                        "ack": {
                            "type": "array",
                            "items": object_(
                                {
                                    "queue": TEXT,
                                    "stream": TEXT,
                                    "subscription": TEXT,
                                    "handles": _HANDLES,
                                },
                                "handles",
                            ),
                        },
                    },
                    closed=True,
                ),
                parameters=[key],
            )
        },
        "/half": {
            "post": _operation(
                "Keep a message until it is committed or rolled back.",
                {201: object_({"name": TEXT}, "name")},
                body={"oneOf": [_half("queue"), _half("exchange")]},
            )
        },
        "/half/{half}": {
            "get": _operation(
                "What is undecided.",
                {
                    200: object_(
                        {
                            "name": TEXT,
                            "checks": {"type": "integer"},
                            "prepared_ms": {"type": "integer"},
                        }
                    )
                },
            )
        },
        "/half/{half}/commit": {"post": _operation("Publish it.", {200: object_({"id": TEXT}, "id")})},
        "/half/{half}/rollback": {"post": _operation("Forget it.", {200: object_({})})},
        "/tail": {
            "get": _operation(
                "What is published to MQTT topics from now on, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[_query("topic", TEXT, "A topic filter.", required=True), last_event],
                media="text/event-stream",
            )
        },
        "/ws": {
            "get": _operation(
                "A WebSocket for publishing, consuming and tails; docs/http.md has what it says.", {101: None}
            )
        },
        **_streams(
            _operation("Publish into a stream.", published, body=many, kinds=events, parameters=[acks, key]),
            _operation("Read a stream.", {200: ref("Read")}, parameters=read),
            _operation(
                "What a stream gets, as server-sent events.",
                {200: {"type": "string"}},
                parameters=[
                    _query("from", {"type": "string", "default": "next"}, "As for reading."),
                    last_event,
                ],
                media="text/event-stream",
            ),
        ),
        **_webhooks(read),
    }


def _pulled(source: str) -> Json:
    """What is pulled, whether it is a queue or a subscription."""
    messages = {"type": "array", "items": ref("Message")}
    pulled = object_({"messages": messages, "active": {"type": "boolean"}}, "messages")
    settled = {200: ref("Settled"), 207: ref("Settled")}
    who = "Needed by subscriptions that are not shared: who pulls."
    pull = object_(
        {
            "max_messages": number(1, 1000, 10),
            "max_bytes": number(1, 16 << 20, 1 << 20),
            "wait_ms": number(0, 60000, 5000),
            "lease_ms": number(1000, 43200000, 30000),
            "consumer": {"type": "string", "minLength": 1, "description": who},
        }
    )
    return {
        f"{source}/pull": {"post": _operation("Lease messages, waiting for some.", {200: pulled}, body=pull)},
        f"{source}/ack": {
            "post": _operation("They are done.", settled, body=object_({"handles": _HANDLES}, "handles"))
        },
        f"{source}/nack": {
            "post": _operation(
                "They are given back, or dead-lettered.",
                settled,
                body=object_(
                    {
                        "handles": _HANDLES,
                        "dead_letter": {"type": "boolean"},
                        "delay_ms": number(0, 86400000, 0),
                    },
                    "handles",
                ),
            )
        },
        f"{source}/extend": {
            "post": _operation(
                "They take longer.",
                settled,
                body=object_({"handles": _HANDLES, "lease_ms": number(1000, 43200000, 30000)}, "handles"),
            )
        },
    }


def _streams(publish: Json, read: Json, tail: Json) -> Json:
    stream, subscription = "/streams/{stream}", "/streams/{stream}/subscriptions/{subscription}"
    shown, described = ref("Stream"), ref("Subscription")
    delay = {"type": "integer", "minimum": 0, "maximum": 86400000}
    start = {"type": ["string", "integer"], "description": "earliest, latest, pos:N, -1h or a time."}
    options = {
        "kind": {"enum": ["exclusive", "failover", "shared", "key_shared"], "default": "shared"},
        "start": start,
        "durable": {"type": "boolean", "default": True},
        "ack_timeout_ms": delay,
        "nack_min_ms": delay,
        "nack_max_ms": delay,
        "max_deliveries": {"type": "integer", "minimum": 1, "maximum": 65535},
        "dead_letter": {"type": "string", "description": "A queue or a stream."},
    }
    return {
        "/streams": {
            "get": _operation(
                "All streams.", {200: object_({"streams": {"type": "array", "items": shown}}, "streams")}
            )
        },
        stream: {
            "get": _operation("What it has.", {200: shown}),
            "put": _operation(
                "Make one.",
                {200: shown, 201: shown},
                body=object_(
                    {
                        "max_age": {"type": "string", "description": "Such as 7D."},
                        "max_bytes": {"type": "integer", "minimum": 0, "maximum": 2**62},
                    },
                    closed=True,
                ),
                optional=True,
            ),
            "delete": _operation("End it.", {204: None}),
        },
        f"{stream}/messages": {"post": publish, "get": read},
        f"{stream}/tail": {"get": tail},
        f"{stream}/subscriptions": {
            "get": _operation(
                "Those of a stream.",
                {200: object_({"subscriptions": {"type": "array", "items": described}}, "subscriptions")},
            )
        },
        subscription: {
            "get": _operation("Where it stands.", {200: described}),
            "put": _operation(
                "Make one.",
                {200: described, 201: described},
                body=object_(options, closed=True),
                optional=True,
            ),
            "delete": _operation("End it.", {204: None}),
        },
        **_pulled(subscription),
        f"{subscription}/ack-cumulative": {
            "post": _operation(
                "It is done, with all before it.",
                {200: object_({"acknowledged": {"type": "integer"}}, "acknowledged")},
                body=object_({"handle": TEXT}, "handle"),
            )
        },
        f"{subscription}/seek": {
            "post": _operation(
                "Go on elsewhere.",
                {200: object_({"position": {"type": "integer"}}, "position")},
                body=object_({"to": start}, "to", closed=True),
            )
        },
    }


def _tokens() -> Json:
    user = _query("user", TEXT, "Another user's: for administrators.")
    token = object_(
        {"name": TEXT, "user": TEXT, "made_at": {"type": "integer"}, "expires_at": {"type": "integer"}},
        "name",
        "user",
        "expires_at",
    )
    made = {**token, "properties": {**token["properties"], "token": TEXT}}
    return {
        "/tokens": {
            "get": _operation(
                "Those that are good.",
                {200: object_({"tokens": {"type": "array", "items": token}}, "tokens")},
                parameters=[user],
            ),
            "post": _operation(
                "Make one; it is shown now and never again.",
                {201: made},
                body=object_(
                    {
                        "name": {"type": "string", "minLength": 1, "maxLength": 100},
                        "ttl_s": number(1, 31622400, 2592000),
                        "user": {"type": "string", "description": "Another user: for administrators."},
                    },
                    "name",
                    closed=True,
                ),
            ),
        },
        "/tokens/{token}": {"delete": _operation("End it.", {204: None}, parameters=[user])},
    }


def _webhooks(read: list[Json]) -> Json:
    one, shown = "/webhooks/{name}", ref("Webhook")
    since = {"type": "string", "description": 'A time with its zone, an interval ("-1h"), or "pos:N".'}
    accepted = {"type": "object"}
    return {
        "/webhooks": {
            "get": _operation(
                "All webhooks.", {200: object_({"webhooks": {"type": "array", "items": shown}}, "webhooks")}
            )
        },
        one: {
            "get": _operation("Settings and state.", {200: shown}),
            "put": _operation("Make or change one.", {200: shown, 201: shown}, body=ref("WebhookSettings")),
            "delete": _operation("End it.", {204: None}),
        },
        f"{one}/pause": {"post": _operation("Send nothing until it is resumed.", {200: shown})},
        f"{one}/resume": {"post": _operation("Go on.", {200: shown})},
        f"{one}/test": {"post": _operation("Send a message that is in no queue.", {200: accepted})},
        f"{one}/rotate-secret": {
            "post": _operation(
                "A new secret beside the old one.",
                {200: object_({"secret": TEXT}, "secret")},
                body=object_(
                    {
                        "overlap_ms": number(0, 2592000000, 86400000),
                        "signing": {"enum": ["hmac", "ed25519"]},
                        "secret": TEXT,
                    }
                ),
                optional=True,
            )
        },
        f"{one}/replay": {
            "post": _operation(
                "Send again what was sent.",
                {202: accepted},
                body=object_({"from": since, "to": since}, "from"),
            )
        },
        f"{one}/redrive": {
            "post": _operation(
                "Send its dead letters again.",
                {202: accepted},
                body=object_({"max": number(1, 1000000, 1000)}),
                optional=True,
            )
        },
        f"{one}/attempts": {"get": _operation("The delivery log.", {200: ref("Read")}, parameters=read)},
    }
