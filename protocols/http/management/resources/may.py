"""GET /api/may: whether a user may do something, and the rule that decides it.

    ?user=U&vhost=V&operation=write&name=amq.topic&routing_key=a.b
    {"allowed": false, "rules": [{"rule": "permission", "pattern": "^amq", "allows": true},
                                 {"rule": "topic-permission", "pattern": "^b", "allows": false}]}

`operation` is configure, write or read; `name` an exchange or a queue; `routing_key` matters for topic
exchanges, and a topic of MQTT is a key of amq.topic with `.` for `/`. For administrators, and for everybody
about themselves. The guard of topics (`mqtt.acl_file`) counts, too. Of users who log in by a token of OAuth 2
only these themselves can be asked about: the one rule is then `token`, with its scopes of the operation.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.protocols.http.management.context import Management, absent
from penstock.protocols.http.management.resources.exchanges import exchange_name
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.router.authorization.identity import Identity
from penstock.router.names import wire
from penstock.router.vhost.vhost import Vhost

__all__ = ["OPERATIONS", "add"]

OPERATIONS: Final = ("configure", "write", "read")


def add(api: Management) -> None:
    """Serve this path."""

    async def show(request: Request) -> Response:
        caller, name = api.identity(request), request.parameter("user")
        if name != caller.username:
            api.require(request)
        vhost = api.broker.vhosts.get(request.parameter("vhost"))
        # Nothing is known of users who log in by a token but what their own token says.
        identity = caller if name == caller.username else api.broker.users.identity(name)
        if identity is None or vhost is None:
            raise absent()
        operation = request.parameter("operation")
        if operation not in OPERATIONS:
            raise HttpError(400, "bad_request", f"operation is one of {', '.join(OPERATIONS)}")
        rules = _rules(api, identity, vhost, operation, request)
        return json_response({"allowed": all(rule["allows"] for rule in rules), "rules": rules})

    api.app.routes.add("GET", "/api/may", show)


def _rules(
    api: Management, identity: Identity, vhost: Vhost, operation: Any, request: Request
) -> list[dict[str, Any]]:
    """Those that were asked, in their order: the first one that refuses is the last."""
    allowed, user = api.broker.authorizer, identity.username
    name, key = exchange_name(request.parameter("name")), request.parameter("routing_key")
    exchange = vhost.exchanges.get(name)
    if identity.grants is not None:
        allows = allowed.allow(identity, vhost.name, operation, name)
        if allows and operation != "configure" and exchange is not None and exchange.is_topic:
            allows = allowed.allow_topic(identity, vhost.name, operation, name, wire(key))
        scopes = [one for one in identity.grants.texts() if one.startswith(f"{operation}:")]
        return [{"rule": "token", "pattern": " ".join(scopes) or None, "allows": allows}]
    known = {(one, place): permission for one, place, permission in allowed.permissions()}
    permission = known.get((user, vhost.name))
    if permission is None:
        return [{"rule": "vhost", "pattern": None, "allows": False}]
    pattern = getattr(permission, operation)
    rules = [
        {
            "rule": "permission",
            "pattern": pattern,
            "allows": allowed.allow(identity, vhost.name, operation, name),
        }
    ]
    if not rules[0]["allows"] or operation == "configure" or exchange is None or not exchange.is_topic:
        return rules
    topics = {(one, place, of): permission for one, place, of, permission in allowed.topic_permissions()}
    of_topics = topics.get((user, vhost.name, name))
    allows = allowed.allow_topic(identity, vhost.name, operation, name, wire(key))
    if of_topics is not None or not allows:
        shown = None if of_topics is None else getattr(of_topics, operation)
        rules.append(
            {"rule": "topic-permission" if of_topics else "topic-guard", "pattern": shown, "allows": allows}
        )
    return rules
