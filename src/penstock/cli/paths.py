"""Shared by the commands about messages: paths of the data plane, batches, a progress bar."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.client import segment

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["AT_ONCE", "Item", "base", "batches", "progress", "subscription", "subscription_path"]

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


def subscription_path(parsed: argparse.Namespace, name: tuple[str, str]) -> str:
    """The path of a subscription."""
    return f"{base(parsed)}/streams/{segment(name[0])}/subscriptions/{segment(name[1])}"


def progress(total: int | None, text: str) -> tqdm[Any]:
    """A bar on standard error, on a terminal only."""
    from tqdm import tqdm

    return tqdm(total=total, desc=text, unit=" messages", disable=not sys.stderr.isatty(), leave=False)


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in lists of `AT_ONCE`."""
    rest = iter(items)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch
