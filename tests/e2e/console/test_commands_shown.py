"""The lines that a dialog shows for a shell do what its button does, and have no credential."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import ROOT, Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import leave, sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def _run(line: str) -> None:
    """As a reader's shell would, in which `penstock` is the command."""
    command = f'penstock() {{ {sys.executable} -m penstock "$@"; }}\n{line}'
    login = {"PENSTOCK_USER": "guest", "PENSTOCK_PASSWORD": "guest"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, **login},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)


def _lines(page: Page, button: str, **fields: str) -> list[str]:
    page.locator("main").get_by_role("button", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    for label, value in fields.items():
        dialog.get_by_label(label, exact=True).fill(value)
    dialog.get_by_text("As a command").click()
    expect(dialog.get_by_role("button", name="Copy").first).to_be_visible()
    assert obstacles(page) == []
    lines = dialog.locator("pre").all_inner_texts()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    return lines


def test_the_lines_do_what_the_button_does(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    name = f"-{unique} it's $HOME"
    sign_in(page, at="#/queues")
    page.get_by_role("button", name="Add a queue").click()
    page.get_by_text("As a command").click()
    expect(page.get_by_text("Fill in the fields first.")).to_be_visible()
    page.keyboard.press("Escape")
    by_curl, by_penstock = _lines(page, "Add a queue", Name=name)
    assert api.get("queues/%2F") == []  # what is shown was not sent
    for line in (by_penstock, by_curl):
        _run(line)
        assert [one["name"] for one in api.get("queues/%2F")] == [name]
        page.goto("/#/queues")
        page.get_by_role("link", name=name).click()
        deletes = _lines(page, "Delete")
        _run(deletes[line is by_penstock])
        assert api.get("queues/%2F") == []
        page.goto("/#/overview")
    leave(page)


def test_no_line_has_a_credential(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        sign_in(page, at="#/users/guest")
        hashed = api.get("users/guest")["password_hash"]
        (line,) = _lines(page, "Set tags")
        assert hashed not in line and "PASSWORD_HASH" in line
        for line in _lines(page, "Set password", Password=f"{unique}-secret"):
            assert unique not in line and "PASSWORD" in line
        page.goto("/#/users")
        for line in _lines(page, "Add a user", Name=unique, Password=f"{unique}-secret"):
            assert f"{unique}-secret" not in line and unique in line
    assert api.status("GET", f"users/{unique}") == 404
