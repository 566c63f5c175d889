"""Filters as a program that looks at an encoded message without a Python object.

Not all trees and messages are for it: `filters` has the same as a function, which has the last word.
"""

from penstock.protocols.amqp10.filters.terms import Tree

class Program:
    """All conditions of a receiver; a message passes when each of them is true."""

    def __init__(self, trees: list[Tree]) -> None:
        """Raises ValueError: a tree is not for a program, or they are too large for one."""

    def look(self, payload: bytes) -> bool | None:
        """Whether a message passes; None: the program cannot tell."""
