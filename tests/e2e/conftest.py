"""A gateway in this process and a client of its native protocol, for the tests of the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data") as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[penstock.Client]:
    async with penstock.connect(gateway.url) as client:
        yield client
