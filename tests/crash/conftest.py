"""Fixtures of the tests with a random course: the seed that repeats a run."""

from __future__ import annotations

import secrets

import pytest


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of `--crash-seed`, or a new one; printed, so that a failure shows it."""
    chosen: int | None = pytestconfig.getoption("--crash-seed")
    seed = secrets.randbits(32) if chosen is None else chosen
    print(f"seed {seed}")
    return seed
