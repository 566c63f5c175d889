"""Taking apart the objects that one connection had to itself, so that none is left for the collector.

A connection, its session and the parts of that refer to each other. When the connection is lost they are
unreachable, but each holds the others: memory that stays until the collector looks, which is rarely.
"""

from __future__ import annotations

__all__ = ["empty"]


def empty(*parts: object) -> None:
    """Have objects hold nothing more. Nobody may use them after that."""
    for part in parts:
        vars(part).clear()
