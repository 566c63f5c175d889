"""The OpenAPI document (`openapi`) of webhooks."""

from __future__ import annotations

from penstock.protocols.http.data.openapi.schemas import SECRET, TEXT, Json, object_, ref, since
from penstock.protocols.http.data.openapi.words import listed, operation
from penstock.protocols.http.webhooks.endpoint import Outcome
from penstock.protocols.http.webhooks.handlers import OVERLAP_MS, REDRIVE

__all__ = ["webhooks"]


def webhooks(read: list[Json]) -> Json:
    one, shown = "/webhooks/{name}", ref("Webhook")
    time = since()
    tested = object_(
        {
            "result": {"enum": [one.value for one in Outcome]},
            "status": {"type": "integer"},
            "answer": TEXT,
            "ms": {"type": "number"},
        },
        *("result", "status", "answer", "ms"),
    )
    return {
        "/webhooks": {"get": listed("All webhooks.", "webhooks", shown)},
        one: {
            "get": operation("Settings and state.", {200: shown}),
            "put": operation("Make or change one.", {200: shown, 201: shown}, body=ref("WebhookSettings")),
            "delete": operation("End it.", {204: None}),
        },
        f"{one}/pause": {"post": operation("Send nothing until it is resumed.", {200: shown})},
        f"{one}/resume": {"post": operation("Go on.", {200: shown})},
        f"{one}/verify": {
            "post": operation(
                "Ask the receiver now whether it agrees.",
                {
                    200: object_(
                        {
                            "allowed": {"type": "boolean"},
                            "reason": TEXT,
                            "granted_at": {"type": "integer"},
                            "state": TEXT,
                        },
                        "allowed",
                        "reason",
                    )
                },
            )
        },
        f"{one}/test": {"post": operation("Send a message that is in no queue.", {200: tested})},
        f"{one}/rotate-secret": {
            "post": operation(
                "A new secret beside the old one.",
                {
                    200: object_(
                        {
                            "secret": TEXT,
                            "public_key": {"type": ["string", "null"]},
                            "retire_at": {"type": "integer", "description": "Of the old one; ms since 1970."},
                        },
                        "secret",
                        "public_key",
                        "retire_at",
                    )
                },
                body=object_(
                    {
                        "overlap_ms": OVERLAP_MS.schema(),
                        "signing": {"enum": ["hmac", "ed25519"]},
                        "secret": SECRET,
                    }
                ),
                optional=True,
            )
        },
        f"{one}/replay": {
            "post": operation(
                "Send again what was sent.",
                {202: object_({"from": TEXT, "to": TEXT}, "from", "to")},
                body=object_({"from": time, "to": time}, "from"),
            )
        },
        f"{one}/redrive": {
            "post": operation(
                "Send its dead letters again.",
                {202: object_({"messages": {"type": "integer"}}, "messages")},
                body=object_({"max": REDRIVE.schema()}),
                optional=True,
            )
        },
        f"{one}/attempts": {"get": operation("The delivery log.", {200: ref("Read")}, parameters=read)},
    }
