"""Fixtures of end-to-end tests.

Of the SDK's: a gateway in this process, and a client of it. Of modules with a `gateway` of their own: clients
of its management API, its data plane and its webhooks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.testing import Gateway
from tests.support.certificates import Authority
from tests.support.data_plane import http, queue
from tests.support.hooks import hooks, hooks_of, receiver
from tests.support.management import api

__all__ = ["api", "hooks", "hooks_of", "http", "queue", "receiver"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Of the certificates of a module's servers and clients."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "data") as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[penstock.Client]:
    async with penstock.connect(gateway.url, connect_timeout_s=60) as client:
        yield client
