"""Where a message, or a binding, has been: the headers by which federation ends loops.

    message  x-received-from   array, the last hop first: uri, exchange or queue, redelivered,
                               cluster-name, vhost
    binding  x-bound-from      array, the last hop first: cluster-name, vhost, exchange, hops (s16)

A message crosses to this gateway when it has crossed fewer links than `max-hops`, and was never here. A
binding goes on to an upstream while its hops last, and if it never came from there.

Source: RabbitMQ's rabbit_federation_util, rabbit_federation_exchange_link, rabbit_federation_queue_link.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from pamqp import encode

from penstock.protocols.links.amqp._header_edit import HeaderEdit
from penstock.protocols.links.amqp.header import element, short_string

__all__ = ["BOUND_FROM", "DOWNSTREAM", "UPSTREAM", "bound_from", "exchange_change", "queue_change"]

UPSTREAM: Final = "upstream"
DOWNSTREAM: Final = "downstream"
"""Names of the ends, for errors."""
BOUND_FROM: Final = "x-bound-from"
_RECEIVED_FROM: Final = b"x-received-from"


def _is_of(found: Any, cluster: str, vhost: str) -> bool:
    return isinstance(found, Mapping) and (found.get("cluster-name"), found.get("vhost")) == (cluster, vhost)


def exchange_change(
    here: tuple[str, str], there: Mapping[str, Any], *, max_hops: int, trusts_user_id: bool, frame_max: int
) -> HeaderEdit:
    """The change of messages of a federated exchange.

    Args:
        here: Name of the gateway, and the vhost.
        there: The upstream, as the header names it: `uri`, `exchange`, `cluster-name` and `vhost`.
        max_hops: Links that a message crosses at most.
        trusts_user_id: Whether user-id stays.
        frame_max: The largest frame that the gateway takes, in bytes.

    """
    return HeaderEdit(
        frame_max=frame_max,
        end=DOWNSTREAM,
        removes_user_id=not trusts_user_id,
        array=_RECEIVED_FROM,
        firsts=_firsts(there),
        here=(here[0].encode(), here[1].encode()),
        max_hops=max_hops,
    )


def queue_change(there: Mapping[str, Any], *, trusts_user_id: bool, frame_max: int) -> HeaderEdit:
    """The change of messages of a federated queue; `there` has `queue` in place of `exchange`.

    The header has each upstream once, with the number of visits.
    """
    # RabbitMQ has a long, and pamqp would choose a byte.
    visits = short_string("visit-count") + b"l" + struct.pack(">q", 1)
    return HeaderEdit(
        frame_max=frame_max,
        end=DOWNSTREAM,
        removes_user_id=not trusts_user_id,
        array=_RECEIVED_FROM,
        firsts=_firsts(there, visits),
        visited=(str(there["uri"]).encode(), str(there["queue"]).encode()),
    )


def _firsts(there: Mapping[str, Any], more: bytes = b"") -> tuple[bytes, bytes]:
    """The element of the upstream: for a message that comes the first time, and for one that comes again."""
    first, again = (element({**there, "redelivered": redelivered}, more) for redelivered in (False, True))
    return first, again


def bound_from(
    arguments: Mapping[str, Any], here: tuple[str, str], exchange: str, there: tuple[str, str], max_hops: int
) -> bytes | None:
    """The table of a binding at the upstream as AMQP has it; None: the binding does not go there.

    Args:
        arguments: Of the binding here.
        here: Name of the gateway, and the vhost.
        exchange: Its name here, and which of two at the upstream leads here.
        there: Name of the upstream, and the vhost there.
        max_hops: Links that a message crosses at most.

    """
    found = arguments.get(BOUND_FROM)
    been = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    hops = max_hops
    if been:
        left = been[0].get("hops")
        hops = min(max_hops, int(left) - 1 if isinstance(left, int) else 0)
    if hops <= 0 or any(_is_of(one, *there) for one in been):
        return None
    first = {"cluster-name": here[0], "vhost": here[1], "exchange": f"{here[1]}:{exchange}"}
    # RabbitMQ wants hops as a short, and pamqp would choose a byte.
    elements = element(first, short_string("hops") + b"s" + struct.pack(">h", hops))
    elements += b"".join(map(element, been))
    rest = {name: value for name, value in arguments.items() if name != BOUND_FROM}
    entry = short_string(BOUND_FROM) + b"A" + struct.pack(">I", len(elements)) + elements
    made = bytes(encode.field_table(rest))[4:] + entry
    return struct.pack(">I", len(made)) + made
