"""Tables: from row to row by keyboard, where each row is in the whole list, and the list as a file."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway
from tests.support.console import leave, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def _saved(page: Page, folder: Path) -> list[list[str]]:
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").first.click()
    path = folder / "saved.csv"
    download.value.save_as(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_rows_by_keyboard_and_as_a_file(
    gateway: Gateway, page: Page, api: Api, unique: str, tmp_path: Path
) -> None:
    names = [f'=1,"{unique}{index:03}' for index in range(120)]
    for name in names:
        assert api.status("PUT", f"queues/%2F/{quote(name, safe='')}", {}) == 201
    publish(gateway, names[0], *[b"x"] * 1234)
    sign_in(page, at=f"#/queues?name={unique}")
    table = page.get_by_role("table")
    rows = table.get_by_role("row")
    expect(rows).to_have_count(101)
    expect(table).to_have_attribute("aria-rowcount", "121")
    expect(rows.last).to_have_attribute("aria-rowindex", "101")
    page.get_by_role("region", name="Queues").focus()
    for key, row in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("ArrowUp", 1), ("End", 100)):
        page.keyboard.press(key)
        expect(rows.nth(row)).to_be_focused()
    saved = _saved(page, tmp_path)
    assert len(saved) == 121  # the page that is shown and the next one
    title = saved[0]
    assert "Name" in title and "Ready" in title
    assert [row[title.index("Name")] for row in saved[1:]] == [f"'{name}" for name in names]
    assert [row[title.index("Ready")] for row in saved[1:3]] == ["1234", "0"]
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(21)
    expect(rows.nth(1)).to_have_attribute("aria-rowindex", "102")
    page.get_by_role("region", name="Queues").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Queue {names[100]}")).to_be_visible()
    leave(page)
    for name in names:
        assert api.status("DELETE", f"queues/%2F/{quote(name, safe='')}") == 204


def test_a_table_of_one_object_as_a_file(page: Page, tmp_path: Path) -> None:
    """Without its buttons."""
    sign_in(page, at="#/users/guest")
    expect(page.get_by_role("region", name="Permissions", exact=True)).to_be_visible()
    assert ["/", ".*", ".*", ".*"] in _saved(page, tmp_path)


def test_the_list_of_queues_shows_how_long_messages_wait_and_the_lag_of_subscriptions(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    assert api.status("PUT", f"queues/%2F/{unique}-s", stream) == 201
    base = f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/%2F"
    assert api.client.put(f"{base}/streams/{unique}-s/subscriptions/sub", json={}).status_code in (200, 201)
    publish(gateway, unique, b"x")
    publish(gateway, f"{unique}-s", b"x", b"y")
    sign_in(page, at=f"#/queues?name={unique}")
    table = page.get_by_role("table")
    expect(table.get_by_role("row")).to_have_count(4)
    titles = [one.strip() for one in table.get_by_role("columnheader").all_inner_texts()]
    subscription = f"subscription-{unique}-s/sub"
    for name, waits, lag in ((unique, True, "–"), (f"{unique}-s", False, "–"), (subscription, True, "2")):
        link = page.get_by_role("link", name=name, exact=True)
        cells = table.get_by_role("row").filter(has=link).get_by_role("cell")
        expect(cells.nth(titles.index("Lag"))).to_have_text(lag)
        age = cells.nth(titles.index("Oldest waits"))
        expect(age).to_have_text(re.compile(r"\d" if waits else "^–$"))
    leave(page)
    for name in (unique, f"{unique}-s"):
        assert api.status("DELETE", f"queues/%2F/{name}") == 204
