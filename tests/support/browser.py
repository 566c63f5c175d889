"""Pages in Debian's Chromium, told by Playwright: what goes wrong in a page fails its test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.chromium import chromium_path
from tests.support.limits import LIMIT_S

__all__ = ["chromium", "obstacles", "watched_page"]

_REPORTS = """
addEventListener("securitypolicyviolation", (event) =>
    console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_LOGIN = ("/api/whoami", "/api/login")
"""A page that nobody has logged in to asks who it is; the refusal is the answer."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser that is installed; nothing is downloaded."""
    expect.set_options(timeout=1000 * LIMIT_S)  # 5 s, and the machine may be busy
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium_path(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def watched_page(
    browser: Browser, base: str, *, scheme: str = "light", locale: str | None = None, refusals: bool = False
) -> Iterator[Page]:
    """A page of a browser session of its own. Errors, CSP reports and dialogs of scripts fail the test.

    So do answers of 400 and more, unless `refusals` are what the test is about.
    """
    context = browser.new_context(
        base_url=base,
        color_scheme="dark" if scheme == "dark" else "light",
        locale=locale,
        viewport={"width": 1280, "height": 900},
        ignore_https_errors=True,  # certificates of the tests' own authority
    )
    page = context.new_page()
    wrong: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning") or urlsplit(message.location["url"]).path in _LOGIN:
            return
        if not (refusals and message.text.startswith("Failed to load resource")):
            wrong.append(f"{message.text} at {message.location}")

    page.add_init_script(_REPORTS)
    page.on("console", said)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"a script asks: {dialog.message}"))
    page.set_default_timeout(1000 * LIMIT_S)
    yield page
    context.close()
    assert not wrong, wrong


def obstacles(page: Page) -> list[str]:
    """The obstacles that axe-core finds in the page: each keeps somebody from using it."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    # Details of what passes are not gathered; all rules are run.
    options = "{resultTypes: ['violations']}"
    found = page.evaluate(f"axe.run({options}).then((result) => result.violations)")
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@cache
def _axe() -> str:
    path = Path(__file__).parents[1] / "e2e/node/node_modules/axe-core/axe.min.js"
    assert path.exists(), "the tests need axe-core: make test installs it"
    return path.read_text()
