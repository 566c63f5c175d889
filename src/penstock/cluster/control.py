"""The nodes of a cluster as an administrator sees them, and requests to them. Kafka alone is asked.

Each node notes its position and its role each second (`note`). A request is an entry ASK: the owner reads it
in the gap that it makes, standbys as any entry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.lazy_dataclass import dataclass
from penstock.log_core.replication.entries import Kind, encode
from penstock.log_core.replication.journal import Journal
from penstock.log_core.replication.position import Position

__all__ = [
    "ALIVE",
    "HANDOVER",
    "REBUILD",
    "NodeStatus",
    "Refused",
    "Status",
    "ask",
    "heir",
    "note",
    "status",
    "wait_for_owner",
]

HANDOVER: Final = "handover"
REBUILD: Final = "rebuild"
ALIVE: Final = "alive"
"""Nobody answers: entries of an owner that lives lie before the question."""

_GONE_S: Final = 5.0
_NOTED_S: Final = 1.0
"""How often a node notes itself."""
_LOOK_S: Final = 0.1


class Refused(PenstockError):
    """The nodes are not as a request needs them."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node, as it noted last."""

    node: str
    role: str
    """owner, standby, or gone: it noted nothing for some seconds."""
    offset: int
    """It has everything below."""
    claim: int
    """Offset of the CLAIM that it follows, or made."""
    lag_entries: int
    lag_bytes: int
    lag_s: float
    """Seconds since the owner wrote the oldest entry that it has not, as it told."""
    seen_s: float
    """Seconds since it noted this, by its own clock."""
    version: int
    listeners: dict[str, str]


@dataclass(frozen=True, slots=True)
class Status:
    """A cluster."""

    topic: str
    first: int
    """Offset of the oldest entry that Kafka holds."""
    end: int
    nodes: tuple[NodeStatus, ...]

    @property
    def owner(self) -> NodeStatus | None:
        """The node that owns the log; None: none that is there."""
        return next((node for node in self.nodes if node.role == "owner"), None)

    def node(self, name: str) -> NodeStatus:
        """The node of a name. Raises Refused: there is none."""
        for node in self.nodes:
            if node.node == name:
                return node
        names = ", ".join(node.node for node in self.nodes) or "none yet"
        raise Refused(f"no node has the name {name}", remedy=f"the nodes are: {names}")

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def note(identity: dict[str, object], role: str, position: Position, lag_s: float = 0.0) -> str:
    """A node's note about itself: JSON that `status` reads."""
    told = {
        **identity,
        "role": role,
        "offset": position.offset,
        "claim": position.claim,
        "bytes": position.nbytes,
        "lag_s": round(lag_s, 3),
        "time": round(time.time(), 3),
    }
    return json.dumps(told)


@lru_cache(maxsize=1024)
def _told(text: str) -> dict[str, Any]:
    """A note. The owner looks at the same ones again and again."""
    found: dict[str, Any] = json.loads(text)
    return found


def status(journal: Journal) -> Status:
    """The cluster as of now. Raises JournalFailed."""
    notes = {told["node"]: told for told in map(_told, journal.notes())}
    bounds = journal.bounds()
    now = time.time()
    newest = max((told["claim"] for told in notes.values()), default=-1)
    most = max((told["bytes"] for told in notes.values()), default=0)
    nodes = []
    for name, told in sorted(notes.items()):
        seen_s = max(now - told["time"], 0.0)
        role = told["role"]
        if seen_s > _GONE_S or (role == "owner" and told["claim"] < newest):
            role = "gone"
        nodes.append(
            NodeStatus(
                node=name,
                role=role,
                offset=told["offset"],
                claim=told["claim"],
                lag_entries=max(bounds.end - told["offset"], 0),
                lag_bytes=max(most - told["bytes"], 0),
                lag_s=told.get("lag_s", 0.0),
                seen_s=round(seen_s, 1),
                version=told["version"],
                listeners=told["listeners"],
            )
        )
    return Status(journal.topic, bounds.first, bounds.end, tuple(nodes))


def heir(nodes: Iterable[NodeStatus]) -> str:
    """The standby that is to be the next owner, since it is least behind; empty: there is none."""
    standbys = [node for node in nodes if node.role == "standby"]
    first = min(standbys, key=lambda node: (node.seen_s > 2 * _NOTED_S, node.lag_entries), default=None)
    return first.node if first else ""


def ask(journal: Journal, what: str, to: str) -> Status:
    """Ask the nodes to hand over (to any node: ""), or node `to` to rebuild; the status before it.

    Of any node, the one that is least behind is named: it claims without looking whether others do.

    Raises:
        Refused: the nodes are not as it needs them.
        JournalFailed: Kafka does not answer.

    """
    found = status(journal)
    owner = found.owner
    if owner is None:
        raise Refused("the cluster has no owner", remedy="start a node, or wait until one takes over")
    if to and found.node(to).role != "standby":
        why = "is the owner" if found.node(to).role == "owner" else "is not there"
        raise Refused(f"the node {to} {why}", remedy="name a standby; `penstock cluster status` lists them")
    to = to or heir(found.nodes)
    if not to:
        raise Refused("no standby is there to take over", remedy="start another node")
    request = json.dumps({"ask": what, "to": to}).encode()
    journal.hint(encode(Kind.ASK, owner.claim, 0, payload=request))
    return found


def wait_for_owner(journal: Journal, claim: int, timeout_s: float) -> NodeStatus:
    """The owner by a later CLAIM than `claim`. Raises Refused: there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        owner = status(journal).owner
        if owner is not None and owner.claim > claim:
            return owner
        time.sleep(_LOOK_S)
    raise Refused(
        f"no other node took over within {timeout_s:g} s",
        remedy="look at the nodes: `penstock cluster status`, and their logs",
    )
