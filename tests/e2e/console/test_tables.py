"""Tables: from row to row by keyboard, where each row is in the whole list, and the list as a file."""

from __future__ import annotations

import csv
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
