"""/api/users, /api/permissions, /api/topic-permissions, /api/user-limits, /api/auth/hash_password."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any, Final, NamedTuple

from penstock.protocols.http.management.bodies import LIMIT, Body, Listed, Text
from penstock.protocols.http.management.context import Management, absent, fields_of, text_of
from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.lists import one_of, reply_list
from penstock.router.authentication.passwords import exported_hash, imported_hash
from penstock.router.authorization.permissions import Permission, TopicPermission

__all__ = ["PERMISSION", "TOPIC_PERMISSION", "USER", "USERS", "Tags", "add", "tags_of", "user_view"]

Item = dict[str, Any]


class Tags(NamedTuple):
    """Tags, as `tags_of` reads them."""

    default: Any = None

    def read(self, name: str, value: Any) -> list[str]:
        del name
        return tags_of(value)

    def schema(self) -> Item:
        return {
            "description": "A list, or text with commas.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        }


_ALGORITHM: Final = "rabbit_password_hashing_sha256"
_REGEX: Final = Text(description="A regular expression.")
USER: Final = Body(
    {
        "tags": Tags(),
        "password": Text(),
        "password_hash": Text(description="As an export has it, in base64; empty: none."),
        "hashing_algorithm": Text(_ALGORITHM),
    },
    "tags",
)
USERS: Final = Body({"users": Listed(description="Names of users that are there.")}, "users")
PERMISSION: Final = Body({"configure": _REGEX, "write": _REGEX, "read": _REGEX}, "configure", "write", "read")
TOPIC_PERMISSION: Final = Body(
    {"exchange": Text(), "write": _REGEX, "read": _REGEX}, "exchange", "write", "read"
)


def add(api: Management) -> None:
    """Serve these paths."""
    users, permissions = _Users(api), _Permissions(api)
    for method, path, handler in (
        ("GET", "/api/users", users.index),
        ("GET", "/api/users/without-permissions", users.without_permissions),
        ("POST", "/api/users/bulk-delete", users.bulk_delete),
        ("GET", "/api/users/{user}", users.show),
        ("PUT", "/api/users/{user}", users.put),
        ("DELETE", "/api/users/{user}", users.delete),
        ("GET", "/api/auth/hash_password/{password}", users.hash),
        ("GET", "/api/user-limits", users.limits),
        ("GET", "/api/user-limits/{user}", users.limits),
        ("PUT", "/api/user-limits/{user}/{limit}", users.put_limit),
        ("DELETE", "/api/user-limits/{user}/{limit}", users.delete_limit),
        ("GET", "/api/permissions", permissions.index),
        ("GET", "/api/permissions/{vhost}/{user}", permissions.show),
        ("PUT", "/api/permissions/{vhost}/{user}", permissions.put),
        ("DELETE", "/api/permissions/{vhost}/{user}", permissions.delete),
        ("GET", "/api/users/{user}/permissions", permissions.of_user),
        ("GET", "/api/vhosts/{vhost}/permissions", permissions.of_vhost),
        ("GET", "/api/topic-permissions", permissions.topics),
        ("GET", "/api/topic-permissions/{vhost}/{user}", permissions.show_topics),
        ("PUT", "/api/topic-permissions/{vhost}/{user}", permissions.put_topic),
        ("DELETE", "/api/topic-permissions/{vhost}/{user}", permissions.delete_topics),
        ("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", permissions.delete_topics),
        ("GET", "/api/users/{user}/topic-permissions", permissions.topics_of_user),
        ("GET", "/api/vhosts/{vhost}/topic-permissions", permissions.topics_of_vhost),
    ):
        api.app.routes.add(method, path, handler)


def tags_of(value: Any) -> list[str]:
    """Tags as a list or as text with commas.

    Raises:
        HttpError: 400.

    """
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise HttpError(400, "bad_request", "tags are a list of strings, or a string with commas")
    return [tag for tag in value if tag]


def stored_hash(body: Item) -> str:
    """The stored form of an exported hash; "" for none.

    Raises:
        HttpError: 400, it is no hash that can be verified here.

    """
    exported = text_of(body, "password_hash")
    if not exported:
        return ""
    try:
        return imported_hash(exported, str(body.get("hashing_algorithm", _ALGORITHM)))
    except ValueError as error:
        raise HttpError(400, "bad_request", f"password_hash: {error}") from error


def user_view(api: Management, name: str) -> Item:
    """A user."""
    users = api.broker.users
    exported, algorithm = exported_hash(users.stored(name))
    identity = users.identity(name)
    assert identity is not None
    return {
        "name": name,
        "password_hash": exported,
        "hashing_algorithm": algorithm,
        "tags": sorted(identity.tags),
        "limits": dict(users.limits(name)),
    }


class _Users:
    def __init__(self, api: Management) -> None:
        self._api = api

    async def index(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        return await reply_list(
            request,
            api.broker.users.names(),
            lambda name: user_view(api, name),
            lambda name: (name,),
            in_common=True,
        )

    async def without_permissions(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        having = {user for user, _, _ in api.broker.authorizer.permissions()}
        names = [name for name in api.broker.users.names() if name not in having]
        return await reply_list(
            request, names, lambda name: user_view(api, name), lambda name: (name,), in_common=True
        )

    def _known(self, name: str) -> str:
        if self._api.broker.users.identity(name) is None:
            raise absent()
        return name

    async def show(self, request: Request) -> Response:
        self._api.require(request)
        return one_of(request, user_view(self._api, self._known(request.names["user"])))

    async def put(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        given = fields_of(await request.json())
        if "tags" not in given and "administrator" not in given:
            raise HttpError(400, "bad_request", "tags_not_present")
        body = USER.read({"tags": ["administrator"] * bool(given.get("administrator")), **given})
        name = request.names["user"]
        known = api.broker.users.identity(name) is not None
        password = body["password"]
        if password is not None:
            stored = await api.broker.users.hash(password.encode()) if password else ""
        elif body["password_hash"] is not None:
            stored = stored_hash(body)
        else:
            # As RabbitMQ does it: neither of the two is a user who cannot log in with a password.
            stored = ""
        await api.kept(api.broker.administration.put_user(name, stored, body["tags"]))
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        await api.kept(api.broker.administration.delete_user(self._known(request.names["user"])))
        return Response(204)

    async def bulk_delete(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        names = USERS.read(await request.json())["users"]
        for name in names:
            if api.broker.users.identity(name) is None:
                raise HttpError(400, "bad_request", f"no_such_user {name!r}")
        lsn = 0
        with api.broker.log.unit():
            for name in dict.fromkeys(names):
                lsn = max(lsn, api.broker.administration.delete_user(name))
        await api.kept(lsn)
        return Response(204)

    async def hash(self, request: Request) -> Response:
        """A hash for `password_hash`, RabbitMQ's way."""
        self._api.require(request)
        salt = os.urandom(4)
        digest = hashlib.sha256(salt + request.names["password"].encode()).digest()
        return json_response({"ok": base64.b64encode(salt + digest).decode("ascii")})

    # Limits

    async def limits(self, request: Request) -> Response:
        """Everybody's, for an administrator; others see their own."""
        api = self._api
        if request.names.get("user") != api.identity(request).username:
            api.require(request)
        names = api.broker.users.names()
        if "user" in request.names:
            names = [self._known(request.names["user"])]
        shown: list[Item] = [
            {"user": name, "value": dict(limits)}
            for name in names
            if (limits := api.broker.users.limits(name))
        ]
        return await reply_list(
            request, shown, lambda item: item, lambda item: (item["user"],), in_common=True
        )

    async def put_limit(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        value = LIMIT.read(await request.json())["value"]
        name = self._known(request.names["user"])
        await api.kept(api.broker.administration.set_user_limits(name, {request.names["limit"]: value}))
        return Response(204)

    async def delete_limit(self, request: Request) -> Response:
        api = self._api
        api.require(request)
        name = self._known(request.names["user"])
        await api.kept(api.broker.administration.clear_user_limits(name, request.names["limit"]))
        return Response(204)


class _Permissions:
    def __init__(self, api: Management) -> None:
        self._api = api

    def _all(self, **only: str) -> list[Item]:
        shown = [
            {"user": user, "vhost": vhost, "configure": one.configure, "write": one.write, "read": one.read}
            for user, vhost, one in self._api.broker.authorizer.permissions()
        ]
        return [item for item in shown if all(item[key] == value for key, value in only.items())]

    def _all_topics(self, **only: str) -> list[Item]:
        shown = [
            {"user": user, "vhost": vhost, "exchange": exchange, "write": one.write, "read": one.read}
            for user, vhost, exchange, one in self._api.broker.authorizer.topic_permissions()
        ]
        return [item for item in shown if all(item[key] == value for key, value in only.items())]

    async def _reply(self, request: Request, shown: list[Item]) -> Response:
        return await reply_list(
            request, shown, lambda item: item, lambda item: (item["user"], item["vhost"]), in_common=True
        )

    def _ends(self, request: Request) -> tuple[str, str]:
        """The vhost and the user in the path, both of which are there."""
        api = self._api
        api.require(request)
        vhost, user = request.names["vhost"], request.names["user"]
        if not api.broker.knows(vhost):
            raise HttpError(404, "not_found", "vhost_not_found")
        if api.broker.users.identity(user) is None:
            raise HttpError(404, "not_found", "user_not_found")
        return vhost, user

    async def index(self, request: Request) -> Response:
        self._api.require(request)
        return await self._reply(request, self._all())

    async def of_user(self, request: Request) -> Response:
        if request.names["user"] != self._api.identity(request).username:
            self._api.require(request)
        return await self._reply(request, self._all(user=request.names["user"]))

    async def of_vhost(self, request: Request) -> Response:
        self._api.require(request)
        return await self._reply(request, self._all(vhost=self._api.vhost(request).name))

    async def show(self, request: Request) -> Response:
        self._api.require(request)
        found = self._all(vhost=request.names["vhost"], user=request.names["user"])
        if not found:
            raise absent()
        return one_of(request, found[0])

    async def put(self, request: Request) -> Response:
        vhost, user = self._ends(request)
        body = PERMISSION.read(await request.json())
        known = bool(self._all(vhost=vhost, user=user))
        permission = Permission(**body)
        await self._api.kept(self._api.broker.administration.set_permission(user, vhost, permission))
        return Response(204 if known else 201)

    async def delete(self, request: Request) -> Response:
        vhost, user = self._ends(request)
        if not self._all(vhost=vhost, user=user):
            raise absent()
        await self._api.kept(self._api.broker.administration.clear_permission(user, vhost))
        return Response(204)

    # Topics

    async def topics(self, request: Request) -> Response:
        self._api.require(request)
        return await self._reply(request, self._all_topics())

    async def topics_of_user(self, request: Request) -> Response:
        self._api.require(request)
        return await self._reply(request, self._all_topics(user=request.names["user"]))

    async def topics_of_vhost(self, request: Request) -> Response:
        self._api.require(request)
        return await self._reply(request, self._all_topics(vhost=self._api.vhost(request).name))

    async def show_topics(self, request: Request) -> Response:
        vhost, user = self._ends(request)
        found = self._all_topics(vhost=vhost, user=user)
        if not found:
            raise absent()
        return json_response(found)

    async def put_topic(self, request: Request) -> Response:
        vhost, user = self._ends(request)
        body = TOPIC_PERMISSION.read(await request.json())
        exchange = body["exchange"]
        known = bool(self._all_topics(vhost=vhost, user=user, exchange=exchange))
        permission = TopicPermission(body["write"], body["read"])
        await self._api.kept(
            self._api.broker.administration.set_topic_permission(user, vhost, exchange, permission)
        )
        return Response(204 if known else 201)

    async def delete_topics(self, request: Request) -> Response:
        vhost, user = self._ends(request)
        exchange = request.names.get("exchange")
        await self._api.kept(self._api.broker.administration.clear_topic_permission(user, vhost, exchange))
        return Response(204)
