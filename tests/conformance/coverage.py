"""The table of normative statements in docs/reference/mqtt.md, from the names of the conformance tests.

    python -m tests.conformance.coverage        writes it anew (also: make docs)

`<folder>/statements.toml` has the statements of a version: a text, or a text and the reason why no test holds
the gateway to it. A test belongs to a statement by its name: test_mqtt5_3_1_2_4__... to 3.1.2-4 of MQTT 5.0.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "mqtt.md"
VERSIONS = {"mqtt5": "MQTT 5.0", "mqtt311": "MQTT 3.1.1"}

_BEGIN = "<!-- conformance: written by tests/conformance/coverage.py -->\n"
_END = "<!-- /conformance -->\n"
_TEST = re.compile(r"^ *(?:async )?def (test_(mqtt5|mqtt311)_(\d+(?:_\d+)+)__\w+)\(", re.M)


@dataclass
class Statement:
    """A normative statement and what is done about it."""

    number: str
    text: str
    reason: str | None
    """Why there is no test, where there need not be one."""
    files: list[str] = field(default_factory=list)
    """The modules that have tests of it."""


def statements(folder: str) -> dict[str, Statement]:
    """The statements of a version, by the number as it is in a test's name."""
    found = {}
    for number, entry in tomllib.loads((HERE / folder / "statements.toml").read_text()).items():
        text, reason = (entry, None) if isinstance(entry, str) else entry
        found[re.sub(r"[.-]", "_", number)] = Statement(number, text, reason)
    return found


def covered(folder: str) -> tuple[dict[str, Statement], list[str]]:
    """The statements with the tests they have, and the names of tests that belong to none."""
    found = statements(folder)
    strangers = []
    for path in sorted((HERE / folder).glob("test_*.py")):
        for name, version, number in _TEST.findall(path.read_text()):
            if version == folder and number in found:
                if path.stem not in found[number].files:
                    found[number].files.append(path.stem)
            else:
                strangers.append(f"{path.name}: {name}")
    return found, strangers


def section() -> str:
    """The generated part of the page."""
    by_version = {folder: list(covered(folder)[0].values()) for folder in VERSIONS}
    lines = ["| | statements | with a test | without one, for a reason |", "|---|---|---|---|"]
    for folder, found in by_version.items():
        tested = sum(bool(statement.files) for statement in found)
        lines.append(f"| {VERSIONS[folder]} | {len(found)} | {tested} | {len(found) - tested} |")
    for folder, found in by_version.items():
        lines += ["", f"### {VERSIONS[folder]}", ""]
        lines += ["| | statement, in short | tested in, or why not |", "|---|---|---|"]
        for statement in found:
            done = ", ".join(f"`{name}`" for name in statement.files) or statement.reason
            lines.append(f"| {statement.number} | {statement.text} | {done} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with that part as it should be."""
    text = PAGE.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no marks for the table of conformance")
    return before + begin + section() + end + after


if __name__ == "__main__":
    PAGE.write_text(page())
