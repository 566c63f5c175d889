"""What runs with a random course share: the seed by which one is repeated."""

from __future__ import annotations

import secrets

import pytest


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """That of `--crash-seed`, or a new one; printed, so that a failure tells it."""
    chosen: int | None = pytestconfig.getoption("--crash-seed")
    seed = secrets.randbits(32) if chosen is None else chosen
    print(f"seed {seed}")
    return seed
