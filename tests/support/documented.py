"""The command lines of `penstock` that the pages show outside of checked blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache

from tests.docs.pages import PAGES, blocks
from tests.support.brokers import ROOT

__all__ = ["documented", "placed", "shown"]

_SPAN = re.compile(r"^(?:\$ )?(penstock .*)$|`(penstock [^`]*)`", re.M)


@cache
def shown() -> dict[str, str]:
    """Command line behind `penstock` -> a page that shows it outside a checked block."""
    found: dict[str, str] = {}
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in blocks(page):
            text = text.replace(f"```{block.language}\n{block.code}```", "")
        # A command goes on in the next line behind a backslash; in a paragraph it may be wrapped.
        text = re.sub(r"`penstock [^`]*`", lambda span: " ".join(span[0].split()), text.replace("\\\n", " "))
        for match in _SPAN.finditer(text):
            line = " ".join((match[1] or match[2]).split()[1:])
            words = shlex.split(line, comments=True)
            if words:
                found.setdefault(shlex.join(words), str(page))
    return found


def documented(pattern: str) -> list[list[str]]:
    """The words of each line that matches, behind `penstock`; there is one at least."""
    lines = [shlex.split(line) for line in shown() if re.fullmatch(pattern, line)]
    assert lines, pattern
    return lines


def placed(words: list[str], stand_ins: Mapping[str, str]) -> list[str]:
    """The words with things of a test in place of those that the page made up."""
    return [stand_ins.get(word, word) for word in words]
