"""Which requests administer something, what the audit trail calls that, and what is seen before and after.

Every route that is no GET is either in `ACTIONS` or in `NOT_NOTED`; a test holds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from penstock import logs
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.server.pending_audit import View, audited
from penstock.protocols.http.shared.traffic import kept
from penstock.router.vhost.state import VhostMetadata
from penstock.subscriptions.cursor import _events as events

if TYPE_CHECKING:
    from penstock.protocols.http.server.routes import Handler
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.protocols.listening.registry import Registry
    from penstock.router.broker import Broker
    from penstock.router.policies.policies import PolicyKind
    from penstock.router.vhost.vhost import Vhost

__all__ = ["ACTIONS", "NOT_NOTED", "Noting"]

Names = Mapping[str, str]

_HOOK: Final = "/v1/vhosts/{vhost}/webhooks/{name}"
_QUEUE: Final = "/v1/vhosts/{vhost}/queues/{queue}"
_STREAM: Final = "/v1/vhosts/{vhost}/streams/{stream}"
_SUBSCRIPTION: Final = f"{_STREAM}/subscriptions/{{subscription}}"
_BINDINGS: Final = "/api/bindings/{vhost}/e/{source}"

ACTIONS: Final[dict[tuple[str, str], tuple[str, str]]] = {
    # (method, path): (what it is called, what is seen)
    ("PUT", "/api/users/{user}"): ("user.put", "user"),
    ("DELETE", "/api/users/{user}"): ("user.delete", "user"),
    ("POST", "/api/users/bulk-delete"): ("user.delete-many", "users"),
    ("PUT", "/api/user-limits/{user}/{limit}"): ("user-limit.set", "user_limits"),
    ("DELETE", "/api/user-limits/{user}/{limit}"): ("user-limit.clear", "user_limits"),
    ("PUT", "/api/permissions/{vhost}/{user}"): ("permission.set", "permission"),
    ("DELETE", "/api/permissions/{vhost}/{user}"): ("permission.clear", "permission"),
    ("PUT", "/api/topic-permissions/{vhost}/{user}"): ("topic-permission.set", "topic_permissions"),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}"): ("topic-permission.clear", "topic_permissions"),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}"): (
        "topic-permission.clear", "topic_permissions",
    ),
    ("PUT", "/api/vhosts/{vhost}"): ("vhost.put", "vhost"),
    ("DELETE", "/api/vhosts/{vhost}"): ("vhost.delete", "vhost"),
    ("PUT", "/api/vhost-limits/{vhost}/{limit}"): ("vhost-limit.set", "vhost"),
    ("DELETE", "/api/vhost-limits/{vhost}/{limit}"): ("vhost-limit.clear", "vhost"),
    ("PUT", "/api/policies/{vhost}/{name}"): ("policy.put", "policy"),
    ("DELETE", "/api/policies/{vhost}/{name}"): ("policy.delete", "policy"),
    ("PUT", "/api/operator-policies/{vhost}/{name}"): ("operator-policy.put", "operator_policy"),
    ("DELETE", "/api/operator-policies/{vhost}/{name}"): ("operator-policy.delete", "operator_policy"),
    ("PUT", "/api/global-parameters/{name}"): ("global-parameter.put", ""),
    ("DELETE", "/api/global-parameters/{name}"): ("global-parameter.delete", ""),
    ("PUT", "/api/parameters/{component}/{vhost}/{name}"): ("parameter.put", ""),
    ("DELETE", "/api/parameters/{component}/{vhost}/{name}"): ("parameter.delete", ""),
    ("DELETE", "/api/shovels/vhost/{vhost}/{name}"): ("parameter.delete", ""),
    ("DELETE", "/api/shovels/vhost/{vhost}/{name}/restart"): ("shovel.restart", ""),
    ("DELETE", "/api/federation-links/vhost/{vhost}/{id}/{node}/restart"): ("federation.restart", ""),
    ("POST", "/api/definitions"): ("definitions.import", ""),
    ("POST", "/api/all-configuration"): ("definitions.import", ""),
    ("POST", "/api/definitions/{vhost}"): ("definitions.import", ""),
    ("PUT", "/api/queues/{vhost}/{name}"): ("queue.declare", "queue"),
    ("DELETE", "/api/queues/{vhost}/{name}"): ("queue.delete", "queue"),
    ("DELETE", "/api/queues/{vhost}/{name}/contents"): ("queue.purge", "contents"),
    ("PUT", "/api/exchanges/{vhost}/{name}"): ("exchange.declare", "exchange"),
    ("DELETE", "/api/exchanges/{vhost}/{name}"): ("exchange.delete", "exchange"),
    ("POST", f"{_BINDINGS}/q/{{destination}}"): ("binding.add", "queue_bindings"),
    ("POST", f"{_BINDINGS}/e/{{destination}}"): ("binding.add", ""),
    ("DELETE", f"{_BINDINGS}/q/{{destination}}/{{props}}"): ("binding.remove", "queue_bindings"),
    ("DELETE", f"{_BINDINGS}/e/{{destination}}/{{props}}"): ("binding.remove", ""),
    ("DELETE", "/api/connections/{name}"): ("connection.close", "connection"),
    ("DELETE", "/api/connections/username/{user}"): ("connection.close-of-user", ""),
    ("PUT", "/api/nodes/{node}/log-level"): ("log-level.set", "log_level"),
    ("PUT", "/api/cluster-name"): ("cluster.rename", ""),
    ("POST", "/api/certificates/reload"): ("certificates.reload", ""),
    ("DELETE", "/api/reset"): ("history.reset", ""),
    ("DELETE", "/api/reset/{node}"): ("history.reset", ""),
    ("PUT", "/api/nodes/{node}/memory-high-watermark"): ("memory-limit.set", "memory_limit"),
    ("PUT", "/api/recording"): ("recording.set", "recording"),
    ("PUT", "/api/nodes/{node}/application"): ("application.set", "accepting"),
    ("POST", "/v1/tokens"): ("token.issue", ""),
    ("DELETE", "/v1/tokens/{token}"): ("token.revoke", ""),
    ("PUT", _QUEUE): ("queue.declare", "queue"),
    ("DELETE", _QUEUE): ("queue.delete", "queue"),
    ("POST", f"{_QUEUE}/replay"): ("queue.replay", "queue"),
    ("PUT", _STREAM): ("stream.put", "queue"),
    ("DELETE", _STREAM): ("stream.delete", "queue"),
    ("PUT", _SUBSCRIPTION): ("subscription.put", ""),
    ("DELETE", _SUBSCRIPTION): ("subscription.delete", ""),
    **{
        ("POST", f"{_SUBSCRIPTION}/{verb}"): (f"subscription.{verb}", "")
        for verb in ("seek", "pause", "resume")
    },
    ("PUT", _HOOK): ("webhook.put", "webhook"),
    ("DELETE", _HOOK): ("webhook.delete", "webhook"),
    **{
        ("POST", f"{_HOOK}/{verb}"): (f"webhook.{verb}", "webhook")
        for verb in ("pause", "resume", "verify", "test", "rotate-secret", "replay", "redrive")
    },
}  # fmt: skip

NOT_NOTED: Final = frozenset(
    {
        # Messages.
        ("POST", "/api/exchanges/{}/{}/publish"),
        ("POST", "/api/queues/{}/{}/get"),
        ("POST", "/v1/vhosts/{}/exchanges/{}/messages"),
        ("DELETE", "/v1/vhosts/{}/exchanges/{}/delayed/{}"),
        ("DELETE", "/v1/vhosts/{}/delayed/{}"),
        ("POST", "/v1/vhosts/{}/delayed/{}/send"),
        ("POST", "/v1/vhosts/{}/mqtt/messages"),
        ("POST", "/v1/vhosts/{}/producers"),
        ("POST", "/v1/vhosts/{}/streams/{}/messages"),
        ("POST", "/v1/vhosts/{}/streams/{}/subscriptions/{}/ack-cumulative"),
        ("POST", "/v1/vhosts/{}/queues/{}/messages"),
        ("POST", "/v1/vhosts/{}/queues/{}/redrive"),
        ("POST", "/v1/vhosts/{}/queues/{}/peek"),
        ("POST", "/v1/vhosts/{}/log/search"),
        ("POST", "/api/exchanges/{}/{}/route"),
        ("POST", "/v1/vhosts/{}/half"),
        ("POST", "/v1/vhosts/{}/half/{}/commit"),
        ("POST", "/v1/vhosts/{}/half/{}/rollback"),
        ("POST", "/v1/vhosts/{}/transactions"),
        ("POST", "/v1/vhosts/{}/transactions/{}/commit"),
        ("POST", "/v1/vhosts/{}/transactions/{}/rollback"),
        *(
            ("POST", f"/v1/vhosts/{{}}/{source}/{verb}")
            for source in ("queues/{}", "streams/{}/subscriptions/{}")
            for verb in ("pull", "ack", "nack", "extend")
        ),
        # Logins. Those that were refused are noted, by whichever way they came.
        ("POST", "/api/login"),
        ("DELETE", "/api/login"),
        # They change nothing here.
        ("POST", "/api/queues/{}/{}/actions"),
        ("POST", "/api/rebalance/queues"),
        ("POST", "/api/definitions-dry-run"),
        ("POST", "/api/definitions-dry-run/{}"),
        ("PUT", "/api/feature-flags/{}/enable"),
        ("POST", "/api/vhosts/{}/start/{}"),
    }
)


class Noting:
    """Puts the audit trail around handlers as they are added to routes."""

    def __init__(self, broker: Broker, webhooks: Webhooks, registry: Registry) -> None:
        self._broker = broker
        self._webhooks = webhooks
        self._registry = registry

    def around(self, method: str, path: str, handler: Handler) -> Handler:
        """The handler of a route, noted if it is to be."""
        found = ACTIONS.get((method, path))
        if found is None:
            return handler
        action, seen = found
        view: View | None = getattr(self, f"_{seen}") if seen else None

        async def on_disk(lsn: int) -> None:
            await kept(self._broker, lsn)

        long = action == "definitions.import"
        return audited(self._broker.audit, action, view, handler, long=long, kept=on_disk)

    # Reading

    def _user(self, names: Names) -> Any:
        users, name = self._broker.users, names["user"]
        identity = users.identity(name)
        if identity is None:
            return None
        stored = users.stored(name)
        return {
            "tags": sorted(identity.tags),
            "limits": dict(users.limits(name)),
            "has_password": bool(stored),
            "_password": stored,
        }

    def _users(self, _: Names) -> Any:
        return sorted(self._broker.users.names())

    def _user_limits(self, names: Names) -> Any:
        return dict(self._broker.users.limits(names["user"]))

    def _permission(self, names: Names) -> Any:
        for user, vhost, one in self._broker.authorizer.permissions():
            if (user, vhost) == (names["user"], names["vhost"]):
                return {"configure": one.configure, "write": one.write, "read": one.read}
        return None

    def _topic_permissions(self, names: Names) -> Any:
        return {
            exchange: {"write": one.write, "read": one.read}
            for user, vhost, exchange, one in self._broker.authorizer.topic_permissions()
            if (user, vhost) == (names["user"], names["vhost"])
        }

    def _found(self, names: Names) -> Vhost | None:
        return self._broker.vhosts.get(names["vhost"])

    def _vhost(self, names: Names) -> Any:
        vhost, name = self._found(names), names["vhost"]
        if vhost is not None:
            return {**asdict(vhost.metadata), "limits": dict(vhost.limits)}
        if not self._broker.knows(name):
            return None
        row = self._broker.vhost_row(name)
        return {key: row.get(key) for key in (*VhostMetadata.__slots__, "limits", "worker")}

    def _policy(self, names: Names, kind: PolicyKind = "policy") -> Any:
        vhost = self._found(names)
        policy = None if vhost is None else vhost.policies.get(kind, names["name"])
        if policy is None:
            return None
        return {
            "pattern": policy.pattern,
            "definition": dict(policy.definition),
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        }

    def _operator_policy(self, names: Names) -> Any:
        return self._policy(names, "operator_policy")

    def _entry(self, names: Names) -> Any:
        vhost = self._found(names)
        name = names.get("name") or names.get("stream") or names.get("destination", "")
        return None if vhost is None else vhost.queues.get(name)

    def _queue(self, names: Names) -> Any:
        entry = self._entry(names)
        if entry is None:
            return None
        return {
            "durable": entry.durable,
            "auto_delete": entry.auto_delete,
            "arguments": dict(entry.arguments),
        }

    def _contents(self, names: Names) -> Any:
        entry = self._entry(names)
        return None if entry is None else {"messages_ready": entry.queue.ready_count}

    def _queue_bindings(self, names: Names) -> Any:
        entry = self._entry(names)
        if entry is None:
            return None
        bindings = entry.bindings
        newest = next(reversed(bindings)) if bindings else None
        return {
            "bindings": len(bindings),
            "newest": None
            if newest is None
            else {
                "source": newest.source.name,
                "routing_key": newest.key,
                "arguments": dict(newest.arguments),
            },
        }

    def _exchange(self, names: Names) -> Any:
        vhost = self._found(names)
        exchange = None if vhost is None else vhost.exchanges.get(names["name"])
        if exchange is None:
            return None
        return {
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": dict(exchange.arguments),
        }

    def _connection(self, names: Names) -> Any:
        for live in self._registry.connections():
            if live.name == names["name"]:
                return {"user": live.info.user, "vhost": live.info.vhost}
        return None

    def _log_level(self, _: Names) -> Any:
        return {"level": logs.level()}

    def _recording(self, _: Names) -> Any:
        return {"kinds": list(events.kept())}

    def _memory_limit(self, _: Names) -> Any:
        memory = self._registry.memory
        return None if memory is None else {"limit_bytes": memory.limit_bytes}

    def _accepting(self, _: Names) -> Any:
        clients = ("amqp", "mqtt", "native")
        return {
            "accepting": any(one.accepting for name in clients for one in self._registry.of(name)),
        }

    def _webhook(self, names: Names) -> Any:
        vhost = self._found(names)
        try:
            worker = None if vhost is None else self._webhooks.get(vhost, names["name"])
        except HttpError:
            worker = None
        if worker is None:
            return None
        webhook = worker.webhook
        shown = webhook.settings.shown()
        return {
            **shown,
            # A receiver may want a key in its query.
            "url": shown["url"].partition("?")[0],
            "user": webhook.user,
            "paused": webhook.paused,
            "disabled": webhook.disabled,
            "secrets": len(webhook.secrets),
            "_secret": list(webhook.secrets),
            "_headers": dict(webhook.settings.headers),
            "_auth": webhook.settings.auth.stored(),
            "_url": webhook.settings.url,
        }
