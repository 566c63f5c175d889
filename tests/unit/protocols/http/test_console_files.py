"""The console's files: those of others are what they were when they were taken, and the rest stays small."""

from __future__ import annotations

import hashlib
import re
import zlib
from pathlib import Path

import pytest

from penstock.protocols.http.console import files

WWW = Path(files.__file__).parent / "www"
OURS = sorted(path for path in WWW.rglob("*.js") if path.parent.name != "vendor")


def test_the_files_of_others_are_those_that_were_taken() -> None:
    vendor = WWW / "vendor"
    lines = (vendor / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert found == listed
    assert {"preact.js", "uplot.js"} <= set(found) and sum(name.endswith(".LICENSE") for name in found) == 3


def test_all_files_together_are_small() -> None:
    size = sum(
        len(zlib.compress(path.read_bytes(), 9)) for path in WWW.rglob("*") if path.suffix in files._TYPES
    )
    assert size < 200_000


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_module_makes_html_of_texts_or_asks_another_host(path: Path) -> None:
    text = path.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in text
    assert not re.search(r"https?://", text)


def test_every_module_that_is_imported_is_there() -> None:
    imported = 0
    for path in OURS:
        for name in re.findall(r'(?:from|import\()\s*"(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).is_file(), (path, name)
            imported += 1
    assert imported > 30
