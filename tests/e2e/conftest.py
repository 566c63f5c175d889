"""Fixtures of the SDK's tests (a gateway in this process, a client of it) and of those of webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import Gateway
from tests.support.hooks import hooks_of, receiver

__all__ = ["hooks_of", "receiver"]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data") as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[penstock.Client]:
    async with penstock.connect(gateway.url) as client:
        yield client
