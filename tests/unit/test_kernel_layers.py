"""The kernels keep to the layers of pyproject.toml, too: import-linter reads Python modules only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [contract for contract in CONTRACTS if contract["type"] == "layers"]
IMPORT = re.compile(r"^from (penstock\.[\w.]+) c?import", re.MULTILINE)


def kernels() -> Iterator[tuple[str, Path]]:
    """Each file of a kernel, and the name of its module."""
    for folder in ("log_core", "subscriptions", "router", "protocols"):
        for pattern in ("*.pyx", "*.pxd"):
            for path in sorted((ROOT / folder).rglob(pattern)):
                yield ".".join(("penstock", *path.relative_to(ROOT).with_suffix("").parts)), path


def ranks(contract: dict[str, list[str]]) -> dict[str, int]:
    """The rank of each package of a contract, the outermost first."""
    found = {}
    for container in contract.get("containers", [""]):
        for rank, row in enumerate(contract["layers"]):
            for name in row.split("|"):
                found[f"{container}.{name.strip()}".strip(".")] = rank
    return found


def rank_of(module: str, known: dict[str, int]) -> int | None:
    for name, rank in known.items():
        if module == name or module.startswith(name + "."):
            return rank
    return None


@pytest.mark.parametrize("contract", LAYERS, ids=lambda one: one["name"])
def test_kernels_import_downwards_only(contract: dict[str, list[str]]) -> None:
    known = ranks(contract)
    wrong = []
    for module, path in kernels():
        mine = rank_of(module, known)
        for imported in IMPORT.findall(path.read_text()):
            theirs = rank_of(imported, known)
            if mine is not None and theirs is not None and theirs < mine:
                wrong.append(f"{path.relative_to(ROOT)} imports {imported}")
    assert wrong == []


def test_there_are_kernels_and_contracts() -> None:
    assert len(list(kernels())) > 100 and len(LAYERS) >= 8
