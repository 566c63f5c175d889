"""The common part of links of federated exchanges and of federated queues: both connections, and their facts.

The upstream is the source and the gateway itself the target. The link's own messages, bindings and consumers
are in `federated_exchange` and `federated_queue`.
"""

from __future__ import annotations

import hashlib
import random
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal

from pamqp import commands

from penstock.lazy_dataclass import dataclass
from penstock.protocols.links.amqp.federation.hops import DOWNSTREAM, UPSTREAM
from penstock.protocols.links.amqp.methods import ExchangeDeclare, QueueDeclare
from penstock.protocols.links.amqp.mover import End, Progress
from penstock.protocols.links.amqp.place import place_of
from penstock.protocols.links.amqp.uri import Uri, masked, parse_uri
from penstock.protocols.links.amqp.wire import Closed, Connection
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.link import Link

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.federation.upstreams import Upstream
    from penstock.protocols.links.local import Local

__all__ = ["Federated", "FederatedLink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Federated:
    """An exchange or a queue of the gateway, and one upstream of it. A link has the life of one value."""

    vhost: str
    type: Literal["exchange", "queue"]
    name: str
    upstream: Upstream
    declared: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of a declaration of the same at the upstream, but for the name."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """One link has it at a time."""
        return self.vhost, self.type, self.name, self.upstream.name

    @property
    def upstream_name(self) -> str:
        """The name of the exchange or queue at the upstream."""
        there = self.upstream.exchange if self.type == "exchange" else self.upstream.queue
        return self.name if there is None else there


class FederatedLink(Link):
    """See the module."""

    kind = "federation"

    def __init__(self, federated: Federated, user: str, local: Local, cluster: str) -> None:
        """A link that `run` begins.

        Args:
            federated: Its ends.
            user: The user who logs in at the gateway itself.
            local: The gateway's own side.
            cluster: The name of this gateway.

        """
        upstream = federated.upstream
        name = f"{federated.type} {federated.name} from {upstream.name}"
        super().__init__(federated.vhost, name, upstream.reconnect_delay_s)
        self.federated: Final = federated
        self.id: Final = hashlib.sha256(repr(federated.key).encode()).hexdigest()[:8]
        self.upstream: Final = upstream
        self.lag: int | None = None
        """Messages that wait at the upstream, when they were last counted."""
        self.cluster: Final = cluster
        self._user = user
        self._local = local
        self._uri = upstream.uris[0]
        """The one in use."""
        self._progress = Progress(self._moved, self._waiting)

    def facts(self) -> Mapping[str, Any]:
        federated = self.federated
        return {
            federated.type: federated.name,
            f"upstream_{federated.type}": federated.upstream_name,
            "type": federated.type,
            "upstream": self.upstream.name,
            "id": self.id,
            "uri": masked(self._uri).partition("?")[0],
            "local_connection": f"{self.product} (downstream)",
            "pending": self._progress.pending,
            "messages_ready": self.lag,
        }

    @property
    def product(self) -> str:
        """How it names itself at both ends."""
        return f"penstock federation {self.upstream.name}"

    async def _serve(self) -> None:
        self._uri = random.choice(self.upstream.uris)
        uri = parse_uri(self._uri)
        try:
            async with await self._open(UPSTREAM, uri) as source:
                here = Uri(vhost=self.vhost)
                async with await self._open(DOWNSTREAM, here, source.frame_max) as target:
                    if self.upstream.ack_mode == "on-confirm":
                        await target.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
                    await self._federate(End(UPSTREAM, source), End(DOWNSTREAM, target), uri)
        except Closed as error:
            raise LinkError(f"{UPSTREAM}: {error.message}") from None
        finally:
            self._progress.pending = 0

    @abstractmethod
    async def _federate(self, source: End, target: End, uri: Uri) -> None:
        """Say `_up`, and move messages until an end is lost. Raises LinkError, OSError."""

    @abstractmethod
    async def clean(self) -> None:
        """Take away what the link made at its upstream: it is over for good. Raises LinkError, OSError."""

    async def _open(self, end: str, uri: Uri, frame_max: int = 128 << 10) -> Connection:
        try:
            place = place_of(uri, self._local, self._user)
            return await Connection.open(place, uri.vhost, frame_max=frame_max, product=self.product)
        except Closed as error:
            raise LinkError(f"{end}: {error.message}") from None
        except OSError as error:
            where = f"{uri.host}:{uri.port}" if uri.host else "the gateway itself"
            raise LinkError(f"{end}: no connection to {where}: {error.strerror or error}") from None

    async def _is_there(self, uri: Uri, passive: ExchangeDeclare | QueueDeclare) -> bool:
        """Whether a passive declaration finds its thing. A refusal ends its connection, so it has its own."""
        is_queue = isinstance(passive, QueueDeclare)
        async with await self._open(UPSTREAM, uri) as asking:
            try:
                await asking.call(
                    passive, commands.Queue.DeclareOk if is_queue else commands.Exchange.DeclareOk
                )
            except Closed as error:
                if error.code != 404:
                    raise
                return False
        return True

    def _there(self, source: Connection, uri: Uri) -> dict[str, Any]:
        """The upstream, as headers name it."""
        return {
            "uri": masked(self._uri).partition("?")[0].replace(":******@", "@"),
            self.federated.type: self.federated.upstream_name,
            "cluster-name": str(source.server.get("cluster_name", "")),
            "vhost": uri.vhost,
        }

    def _moved(self, count: int) -> None:
        self.counts.forwarded += count

    def _waiting(self, count: int) -> None:
        self.lag = count
