"""requirements.lock: a version for each requirement of pyproject.toml, which the requirement allows."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
UNLOCKED = {"bench"}
"""Extras that are installed in the newest versions, beside which penstock is measured."""


def required() -> list[Requirement]:
    project = PROJECT["project"]
    texts = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    for extra, more in project["optional-dependencies"].items():
        if extra not in UNLOCKED:
            texts += more
    return [Requirement(text) for text in sorted(set(texts))]


def locked() -> dict[str, list[Version]]:
    """Versions by name: more than one where they depend on the Python version."""
    found: dict[str, list[Version]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        one = Requirement(line)
        (pin,) = one.specifier
        assert pin.operator == "==", f"{line} is no version"
        found.setdefault(canonicalize_name(one.name), []).append(Version(pin.version))
    return found


@pytest.mark.parametrize("one", required(), ids=str)
def test_each_requirement_has_a_version_that_it_allows(one: Requirement) -> None:
    versions = locked().get(canonicalize_name(one.name), [])
    assert versions, f"{one.name} is not in requirements.lock: run make lock"
    assert all(version in one.specifier for version in versions), f"{one}: {versions}; run make lock"
