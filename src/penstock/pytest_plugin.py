"""Fixtures for tests of programs that use penstock; pytest finds them by itself.

Imports nothing of the gateway before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import Gateway


@pytest.fixture
def penstock_gateway() -> Iterator[Gateway]:
    """A gateway in this process, on free ports and with data of its own."""
    from penstock.testing import Gateway

    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def penstock_url(penstock_gateway: Gateway) -> str:
    """The address of such a gateway, for `penstock.connect`."""
    return penstock_gateway.url
