"""Shared by the commands about messages: paths of the data plane, and batches."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from penstock.cli.running.client import Client, segment

__all__ = ["AT_ONCE", "Item", "base", "batches", "count", "give_back", "subscription", "subscription_path"]

Item = dict[str, Any]

AT_ONCE: Final = 500
"""Messages of one request."""


def base(parsed: argparse.Namespace) -> str:
    """The path of the vhost that is meant."""
    return f"/v1/vhosts/{segment(parsed.vhost)}"


def subscription(text: str) -> tuple[str, str]:
    """The type of an argument that names a subscription: TOPIC/NAME."""
    topic, slash, name = text.rpartition("/")
    if not (slash and topic and name):
        raise argparse.ArgumentTypeError("write TOPIC/NAME")
    return topic, name


def count(text: str) -> int:
    """The type of an argument that is a number of messages."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def subscription_path(parsed: argparse.Namespace, name: tuple[str, str]) -> str:
    """The path of a subscription."""
    return f"{base(parsed)}/streams/{segment(name[0])}/subscriptions/{segment(name[1])}"


def give_back(client: Client, path: str, messages: Sequence[Item]) -> None:
    """Let others have what was pulled at a path, at once: not when the leases end."""
    for batch in batches(messages):
        client.request("POST", f"{path}/nack", {"handles": [one["handle"] for one in batch]})


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in lists of `AT_ONCE`."""
    rest = iter(items)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch
