"""One gateway and one browser for all tests of the console, and a page of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page

from tests.support.brokers import Gateway
from tests.support.browser import chromium, watched_page
from tests.support.management import SETTINGS, Api


@pytest.fixture(scope="package")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("console"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


@pytest.fixture
def page(gateway: Gateway, browser: Browser) -> Iterator[Page]:
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        yield page
