"""Regular expressions of users and policies. RE2 matches them, so that no pattern and no name takes long.

A pattern is searched in a name, not anchored. RE2 lacks only what needs backtracking: look-around and back
references. They are reported when the pattern is set. Names are matched as the bytes of the client.

Source: RE2's syntax page.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import re2

from penstock.router.errors import InvalidRegex
from penstock.router.names import wire

__all__ = ["PATTERN_MAX", "Pattern", "compile_pattern"]

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20
"""Of one compiled pattern; RE2's own default is 8 MiB."""

PATTERN_MAX: Final = 4096
"""Bytes of a pattern, at most."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, name: bytes) -> object | None:
        """Something when it is found in the name, else None."""


@lru_cache(4096)
def compile_pattern(pattern: str) -> Pattern:
    """The pattern, ready to be searched in the bytes of names.

    Raises:
        InvalidRegex: it is none, it needs backtracking, or it is too large.

    """
    data = wire(pattern)
    if len(data) > PATTERN_MAX:
        raise InvalidRegex(pattern[:64] + "...", f"longer than {PATTERN_MAX} bytes")
    try:
        compiled: Pattern = re2.compile(data, _OPTIONS)
    except re2.error as error:
        (reason,) = error.args
        raise InvalidRegex(pattern, reason.decode("utf-8", "replace")) from None
    return compiled
