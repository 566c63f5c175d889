"""GET /problems/CODE: what a problem's `type` leads to, for people.

The total table of codes of the data plane; a test holds it to what handlers refuse with. The pages need no
login: they say nothing that docs/reference/http.md does not.

Source: RFC 9457 3.1.1.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.http.server.app import HttpApp
from penstock.protocols.http.server.messages import HttpError, Request, Response

__all__ = ["PROBLEMS", "add", "is_open"]

PROBLEMS: Final = {
    "access_refused": "The user may not do this; permissions are asked for names, there or not.",
    "bad_field": "A field or a parameter has a value that cannot be; the detail names it and says what can.",
    "bad_request": "The broker refuses what was asked for; the detail says why.",
    "body_too_large": "The body is over 16 MiB: send it in several requests.",
    "busy": "Too many logins are being checked: try again after Retry-After.",
    "cross_site": "A page of another origin may not use this gateway through the reader's browser.",
    "failed": "A check of the gateway failed; the detail says which.",
    "fenced": "Another process has begun with the producer's name: end this one, or POST producers.",
    "forbidden_target": "A webhook may not lead there: see webhooks.allow_networks in docs/reference/.",
    "headers_too_large": "Header fields are over 16 KiB.",
    "idempotency_key_reused": "The key was used with another body: make a new key for a new request.",
    "inequivalent": "It is there already and is otherwise; the detail names the difference.",
    "internal_error": "A fault of the gateway: its log has the whole of it.",
    "log_failed": "The log cannot write: what was sent may be kept or not. Send it again with the same "
    "Idempotency-Key when the gateway is back.",
    "malformed": "It is not the HTTP that the protocol's documents allow, or the body was broken off.",
    "method_not_allowed": "The path takes other methods: the header Allow has them.",
    "not_authorized": "There is no login, it is wrong, or it has ended: log in with Basic or a token.",
    "not_found": "There is no such path, or no such thing.",
    "not_json": "The body is not JSON.",
    "out_of_order_sequence": "Messages before these are missing: send them, or POST producers and "
    "begin with 0.",
    "paused": "Memory or disk is short, or the disk too slow: publishers wait, consumers go on. Send it "
    "again after Retry-After.",
    "position_deleted": "Retention has dropped it; `earliest` is where the stream begins now.",
    "queue_full": "A queue that it was to go to has reached its length and refuses (reject-publish).",
    "quota": "The vhost holds more than its quota of bytes: send it again when some of it is consumed.",
    "rate": "The user, or all publishers to the vhost, publish more per second than their limit: send it "
    "again after Retry-After.",
    "refused": "This one of several messages was not kept.",
    "stale_handle": "The lease of the message is over: it was settled, or given back to the queue.",
    "subscription_busy": "Another consumer is in the way: of its kind the subscription has one at a time.",
    "too_many_consumers": "There are as many named consumers as there may be: let some end.",
    "too_many_handles": "Settle in several requests.",
    "too_many_messages": "Publish in several requests: 10,000 messages each, 1,000 as one atomic unit.",
    "too_many_polls": "10,000 polls wait, or 1,000 pulls go on, already: try again after Retry-After.",
    "too_many_subscriptions": "A WebSocket has 100 subscriptions at most.",
    "too_many_tails": "There are 1,000 tails already: try again after Retry-After.",
    "too_many_transactions": "Open transactions are too many, or hold too much: commit or roll back.",
    "too_many_logins": "Too many logins from this address failed: try again after Retry-After.",
    "too_many_webhooks": "There are as many webhooks as there may be: delete one.",
    "transaction_gone": "It was ended, its time was up, or the gateway was started again: begin another one.",
    "transaction_too_large": "A transaction has 10,000 messages and handles, and 16 MiB, at most.",
    "unsupported_media_type": "A page sent a body of a type that any form can send: send application/json.",
    "unavailable": "It cannot be done now; the detail says why.",
    "unknown_producer": "It never began with this epoch, or sent nothing for a day: POST producers.",
    "unroutable": "No queue and no subscription gets the message, and it was published as mandatory.",
    "uri_too_long": "The request target is over 8 KiB.",
    "worker_down": "The worker that has the vhost is being started again: try again after Retry-After.",
    "wrong_mode": "This kind of queue or subscription is used otherwise; the detail says how.",
}
"""The meaning of each code, and the remedy."""


def is_open(request: Request) -> bool:
    """Whether a request is for one of these pages."""
    return len(request.segments) == 2 and request.segments[0] == "problems"


def add(app: HttpApp) -> None:
    """Serve them."""
    app.routes.add("GET", "/problems/{code}", _page)


async def _page(request: Request) -> Response:
    code = request.names["code"]
    text = PROBLEMS.get(code)
    if text is None:
        raise HttpError(404, "not_found", "there is no such problem")
    return Response(200, f"{code}\n\n{text}\n".encode(), "text/plain; charset=utf-8")
