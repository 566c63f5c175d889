"""The context of every handler of the management API: the broker, who may see what, waiting for the disk.

Rights are the authorizer's, as on every protocol, and besides them a tag, as in RabbitMQ: without one the API
is shut; `management` shows the vhosts the user may enter; `policymaker` also sets policies and parameters
there; `monitoring` sees everything and changes nothing more; `administrator` may do everything but what the
permissions in a vhost forbid.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock import __version__
from penstock.protocols.http.management.history import History
from penstock.protocols.http.management.plots import Curve
from penstock.protocols.http.management.rates import Sampler
from penstock.protocols.http.management.sorted_queues import SortedQueues
from penstock.protocols.http.server.app import NO_TAG, HttpApp
from penstock.protocols.http.server.messages import HttpError, Request
from penstock.protocols.http.shared.lag import HeadTimes
from penstock.protocols.http.shared.shared_answers import SharedAnswers
from penstock.protocols.http.shared.traffic import Messages, kept
from penstock.router.authorization.identity import Actor, Identity

if TYPE_CHECKING:
    from penstock.config.findings import Finding
    from penstock.protocols.http.data.access import Access
    from penstock.protocols.http.data.publishing.staged import Staged
    from penstock.protocols.http.server.workers import Forwarder
    from penstock.protocols.http.webhooks.service import Webhooks
    from penstock.protocols.links.links import Links
    from penstock.protocols.listening.registry import Live, Registry
    from penstock.protocols.login.code_flow import CodeFlow
    from penstock.protocols.tls.contexts import Tls
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["AUDITOR", "LISTENER_PROTOCOLS", "PRODUCT", "RABBITMQ_VERSION", "Management"]

RABBITMQ_VERSION: Final = "4.2.0"
"""The version whose API this answers like: tools choose by it what they ask for."""
PRODUCT: Final = "penstock"
LISTENER_PROTOCOLS: Final = {
    "amqp": "amqp",
    "amqps": "amqp/ssl",
    "amqp_ws": "http/web-amqp",
    "amqp_wss": "https/web-amqp",
    "mqtt": "mqtt",
    "mqtt_unix": "mqtt",
    "mqtts": "mqtt/ssl",
    "ws": "http/web-mqtt",
    "wss": "https/web-mqtt",
    "management": "http",
    "management_tls": "https",
    "metrics": "http/prometheus",
    "http": "http",
    "http_tls": "https",
    "native": "penstock",
    "natives": "penstock/ssl",
}
"""RabbitMQ's names of the protocols of our listeners."""

_TAGS: Final = frozenset({"administrator", "monitoring", "policymaker", "management"})
AUDITOR: Final = "auditor"
"""The tag of users who may read the audit trail, and nothing else."""


class _Owner:
    """Stands for the API where a connection is asked for: it owns no exclusive queue."""


class NodeOfCluster(Protocol):
    """A node, as it told lately."""

    @property
    def node(self) -> str:
        """Its name."""

    @property
    def role(self) -> str:
        """owner, standby or gone."""

    @property
    def lag_entries(self) -> int:
        """Entries of the log that it has not."""

    @property
    def lag_bytes(self) -> int:
        """Their bytes."""

    @property
    def lag_s(self) -> float:
        """Seconds since the owner wrote the oldest entry that it has not."""

    @property
    def seen_s(self) -> float:
        """Seconds since it told."""


class Replication(Protocol):
    """The owner's side of a cluster."""

    @property
    def nodes(self) -> Sequence[NodeOfCluster]:
        """All nodes."""

    def statistics(self) -> Mapping[str, float]:
        """Figures for metrics, by name."""

    def answer_times(self) -> tuple[Sequence[float], Sequence[int], float]:
        """Of a histogram: upper bounds in seconds, counts up to each and above, the sum in seconds."""


class Management:
    """See the module."""

    def __init__(
        self,
        app: HttpApp,
        broker: Broker,
        registry: Registry,
        messages: Messages,
        webhooks: Webhooks,
        links: Links,
        access: Access,
        staged: Staged,
        *,
        cluster: str,
        data_dir: Path,
        disk_free_limit: int,
        tls: Tls | None = None,
        forwarder: Forwarder | None = None,
        history_bytes: int = 0,
        replication: Replication | None = None,
        code_flow: CodeFlow | None = None,
        settings_findings: Callable[[], Iterable[Finding]] = tuple,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`disk_free_limit`: publishers wait with less, in bytes. `tls`: of all listeners; None: none.
        `history_bytes`: the most that histories of counters take; 0 = there are none. `replication`: of
        the owner of a cluster. `code_flow`: how a page logs in at the issuer of tokens; None: it cannot.
        `settings_findings`: what is unsafe in the configuration."""
        self.app = app
        self.tls = tls
        self.broker = broker
        self.registry = registry
        self.clock = clock
        self.started_at = clock()
        self._started_loop_s = asyncio.get_running_loop().time()
        self.forwarder = forwarder
        """The way to the other workers; None: there are none."""
        self.place = ("http", "management")
        """Where other workers serve the same."""
        self.node = broker.node
        self.cluster = cluster
        self.data_dir = data_dir
        self.disk_free_limit = disk_free_limit
        self.messages = messages
        self.webhooks = webhooks
        self.links = links
        self.access = access
        self.staged = staged
        self.version = __version__
        self.replication = replication
        self.code_flow = code_flow
        self.settings_findings = settings_findings
        self.sampler = Sampler(
            broker, registry, asyncio.get_running_loop().time, History(history_bytes, clock)
        )
        self.answers = SharedAnswers(asyncio.get_running_loop().time)
        """Answers that pages ask for again and again."""
        self.queues = SortedQueues(broker)
        self.heads = HeadTimes(broker.log)
        self._owner = _Owner()

    @property
    def memory_limit(self) -> int:
        """Bytes above which publishers wait; 0: there is no limit."""
        return self.registry.memory.limit_bytes if self.registry.memory is not None else 0

    @property
    def is_running(self) -> bool:
        """Clients can connect: their listeners were not stopped."""
        clients = ("amqp", "mqtt", "native")
        found = [listener for name in clients for listener in self.registry.of(name)]
        return not found or any(listener.accepting for listener in found)

    def curve(self, key: Hashable, names: Sequence[str], values: Sequence[int]) -> Curve:
        """The history of an object, by its key in the sampler. `names`: of the `values` that it has now."""
        return Curve(self.sampler.history, key, self.sampler.levels(key), names, values)

    # The caller

    def identity(self, request: Request) -> Identity:
        """The caller, who must have a tag for the API.

        Raises:
            HttpError: 403.

        """
        identity = request.identity
        assert identity is not None  # every route of the API needs a login
        return self.require_tag(identity)

    def person(self, request: Request) -> Identity:
        """The caller, who must have a tag for the console, in which auditors have their page, too.

        Raises:
            HttpError: 403.

        """
        identity = request.identity
        assert identity is not None
        return identity if AUDITOR in identity.tags else self.require_tag(identity)

    def whoami(self, request: Request) -> dict[str, Any]:
        """The caller, as a page needs it; one whom only an issuer of tokens knows is not an internal user.

        Raises:
            HttpError: 403.

        """
        identity = self.person(request)
        return {
            "name": identity.username,
            "tags": sorted(identity.tags),
            "is_internal_user": identity.grants is None,
        }

    def require_tag(self, identity: Identity) -> Identity:
        """A user who has a tag for the API. Raises HttpError 403."""
        if not identity.tags & _TAGS:
            raise _refused(NO_TAG)
        return identity

    def actor(self, request: Request) -> Actor:
        """The caller, as the broker knows it."""
        return Actor(self.identity(request), self._owner)

    def require(self, request: Request, *tags: str) -> Identity:
        """The caller, who must have one of the tags; an administrator has all.

        Raises:
            HttpError: 403.

        """
        identity = self.identity(request)
        if not identity.tags & {*tags, "administrator"}:
            what = {"monitoring": "monitor", "policymaker": "policymaker"}.get(
                tags[0] if tags else "", "administrator"
            )
            raise _refused(f"Not {what} user")
        return identity

    def sees_all(self, request: Request) -> bool:
        """Whether the user sees all vhosts, and other users' connections."""
        return self.identity(request).sees_all

    # Vhosts

    def vhost(self, request: Request, *, change: bool = False) -> Vhost:
        """The vhost in the path.

        Raises:
            HttpError: 403, the user may not see it (or, to `change` something, not enter it); 404.

        """
        name = request.names["vhost"]
        identity = self.identity(request)
        may = self.broker.authorizer.enter(identity, name)
        if name not in self.broker.vhosts and (may or self.sees_all(request)):
            if change:
                raise HttpError(404, "not_found", "vhost_not_found")
            raise absent()
        if not may and (change or not self.sees_all(request)):
            raise _refused("User not authorised to access virtual host")
        return self.broker.vhosts[name]

    def vhosts(self, request: Request) -> list[Vhost]:
        """The vhost in the path, or without one all that the user may see, by name."""
        if "vhost" in request.names:
            return [self.vhost(request)]
        identity = self.identity(request)
        all_ = self.sees_all(request)
        return sorted(
            (
                vhost
                for vhost in self.broker.vhosts.values()
                if all_ or self.broker.authorizer.enter(identity, vhost.name)
            ),
            key=lambda vhost: vhost.name,
        )

    def seen(self, request: Request, lives: Sequence[Live]) -> list[Live]:
        """Connections that the user may see: its own, or all with the tag for it."""
        if self.sees_all(request):
            return list(lives)
        username = self.identity(request).username
        return [live for live in lives if live.info.user == username]

    # Durability

    async def kept(self, lsn: int) -> None:
        """Wait until everything up to `lsn` is on the disk.

        Raises:
            HttpError: 503, the log failed.

        """
        await kept(self.broker, lsn)

    @property
    def uptime_ms(self) -> int:
        """Since the start; strict clients read it into 32 bits."""
        return min(int((self.clock() - self.started_at) * 1000), 2**32 - 1)

    @property
    def clock_moved_s(self) -> float:
        """Seconds by which the wall clock went further since the start than the time of the event loop."""
        passed_s = asyncio.get_running_loop().time() - self._started_loop_s
        return self.clock() - self.started_at - passed_s

    @property
    def os_pid(self) -> str:
        return str(os.getpid())


def absent() -> HttpError:
    """404 as RabbitMQ's tools know it."""
    return HttpError(404, "not_found", "there is nothing of that name")


def _refused(reason: str) -> HttpError:
    return HttpError(403, "not_authorised", reason)


def fields_of(body: Any, required: Iterable[str] = ()) -> dict[str, Any]:
    """The body as an object that has these keys.

    Raises:
        HttpError: 400.

    """
    if not isinstance(body, dict):
        raise HttpError(400, "not_json", "the body is not a JSON object")
    missing = [name for name in required if name not in body]
    if missing:
        told = ",".join(f"{{key_missing,{name}}}" for name in missing)
        raise HttpError(400, "bad_request", f"[{told}]")
    return body


def flag_of(body: dict[str, Any], name: str, default: bool = False) -> bool:
    """A boolean entry; the texts "true" and "false" are taken too.

    Raises:
        HttpError: 400.

    """
    value = body.get(name, default)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise HttpError(400, "bad_request", f"{name} should be a boolean")
    return value


def text_of(body: dict[str, Any], name: str, default: str | None = None) -> str:
    """A text entry.

    Raises:
        HttpError: 400.

    """
    value = body.get(name, default)
    if not isinstance(value, str):
        raise HttpError(400, "bad_request", f"{name} should be a string")
    return value


def table_of(body: dict[str, Any], name: str = "arguments") -> dict[str, Any]:
    """An arguments table; RabbitMQ's empty list stands for an empty one.

    Raises:
        HttpError: 400.

    """
    value = body.get(name, {})
    if value == [] or value is None:
        return {}
    if not isinstance(value, dict):
        raise HttpError(400, "bad_request", f"{name} should be an object")
    return value
