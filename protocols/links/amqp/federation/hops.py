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
from collections.abc import Callable, Mapping
from typing import Any, Final

from pamqp import encode

from penstock.protocols.links.amqp.header import (
    array_of,
    element,
    short_string,
    with_entry,
    with_first,
    without_user_id,
)

__all__ = ["BOUND_FROM", "Change", "bound_from", "exchange_change", "queue_change"]

Change = Callable[[bytes, bool], bytes | None]
"""From the frame of a header, and whether it comes again, to the frame in its place; None: it stays out."""

BOUND_FROM: Final = "x-bound-from"
_RECEIVED_FROM: Final = b"x-received-from"


def _is_of(found: Any, cluster: str, vhost: str) -> bool:
    return isinstance(found, Mapping) and (found.get("cluster-name"), found.get("vhost")) == (cluster, vhost)


def exchange_change(
    here: tuple[str, str], there: Mapping[str, Any], *, max_hops: int, trusts_user_id: bool
) -> Change:
    """The change of messages of a federated exchange.

    Args:
        here: Name of the gateway, and the vhost.
        there: The upstream, as the header names it: `uri`, `exchange`, `cluster-name` and `vhost`.
        max_hops: Links that a message crosses at most.
        trusts_user_id: Whether user-id stays.

    """
    firsts = [element(_hop(there, redelivered)) for redelivered in (False, True)]

    def change(frame: bytes, redelivered: bool) -> bytes | None:
        if _RECEIVED_FROM in frame:
            been = array_of(frame, _RECEIVED_FROM)
            if len(been) >= max_hops or any(_is_of(one, *here) for one in been):
                return None
        if not trusts_user_id:
            frame = without_user_id(frame)
        return with_first(frame, _RECEIVED_FROM, firsts[redelivered])

    return change


def queue_change(there: Mapping[str, Any], *, trusts_user_id: bool) -> Change:
    """The change of messages of a federated queue; `there` has `queue` in place of `exchange`.

    The header has each upstream once, with the number of visits.
    """
    firsts = [_visited(there, redelivered, 1) for redelivered in (False, True)]
    place = there["uri"], there["queue"]

    def change(frame: bytes, redelivered: bool) -> bytes:
        if not trusts_user_id:
            frame = without_user_id(frame)
        if _RECEIVED_FROM not in frame:
            return with_first(frame, _RECEIVED_FROM, firsts[redelivered])
        visits, kept = 1, []
        for one in array_of(frame, _RECEIVED_FROM):
            if isinstance(one, Mapping) and (one.get("uri"), one.get("queue")) == place:
                visits += int(one.get("visit-count", 1))
            else:
                kept.append(one)
        elements = _visited(there, redelivered, visits) + b"".join(
            element(one) for one in kept if isinstance(one, Mapping)
        )
        return with_entry(frame, _RECEIVED_FROM, b"A" + struct.pack(">I", len(elements)) + elements)

    return change


def _visited(there: Mapping[str, Any], redelivered: bool, visits: int) -> bytes:
    # RabbitMQ has a long, and pamqp would choose a byte.
    return element(_hop(there, redelivered), short_string("visit-count") + b"l" + struct.pack(">q", visits))


def _hop(there: Mapping[str, Any], redelivered: bool) -> dict[str, Any]:
    return {**there, "redelivered": redelivered}


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
