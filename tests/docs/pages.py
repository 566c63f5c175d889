"""Reads the check-marked code blocks of a Markdown page.

<!-- check -->       the fenced block that follows is run (python, bash) or read (toml)
<!-- output -->      the fenced block that follows is what the checked block before it must print
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))

_BLOCK = re.compile(
    r"^<!-- (?P<mark>check|output) -->\n```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass(slots=True)
class Block:
    """One checked block."""

    line: int
    """Where the block starts in its page, from 1."""
    language: str
    code: str
    output: str | None = None
    """The expected output; None = any."""


def commands(page: Path, *programs: str) -> list[str]:
    """The commands of a page that run one of these programs, in any folder, in marked blocks or not."""
    text = (ROOT / page).read_text()
    found = []
    for match in re.finditer(r"^```(?:sh|bash)\n(.*?)^```$", text, re.M | re.S):
        for line in match[1].replace("\\\n", " ").splitlines():
            if line.split(" ", 1)[0].rpartition("/")[2] in programs:
                found.append(line)
    return found


def blocks(page: Path) -> list[Block]:
    """The checked blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        if match["mark"] == "check":
            found.append(Block(text.count("\n", 0, match.start()) + 2, match["language"], match["code"]))
        else:
            assert found and found[-1].output is None, f"{page}: an output block belongs to no check block"
            found[-1].output = match["code"]
    marks = len(re.findall(r"^<!-- (?:check|output)", text, re.M))
    assert marks == sum(1 + (block.output is not None) for block in found), f"{page}: a mark without a block"
    return found
