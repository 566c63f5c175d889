"""The heap of a page that is scrolled and followed; `make console-heap` does it for ten minutes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.crash.console_heap import GROWTH_MAX, grown, heap_of_a_list, heap_of_plots
from tests.support.brokers import Gateway
from tests.support.console import leave, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_the_heap_of_a_page_does_not_grow(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    for number in range(200):
        assert api.status("PUT", f"queues/{unique}/q{number:03}", {}) == 201
    sign_in(page)
    assert grown(heap_of_a_list(page, 16, unique, 2)) < GROWTH_MAX
    assert grown(heap_of_plots(page, 16)) < GROWTH_MAX
    leave(page)
    assert api.status("DELETE", f"vhosts/{unique}") == 204
