"""The console in a test: its pages, signing in, messages to look at."""

from __future__ import annotations

from contextlib import closing

import pika
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

__all__ = ["HOSTILE", "PAGES", "go", "leave", "pages_of", "publish", "sign_in"]

HOSTILE = "<img src=x onerror=alert(1)>{{7*7}}${7*7}\u202egnp"
"""A tag that runs a script, braces of templates, a mark that turns text around."""
PAGES = (
    "overview", "connections", "connections/closed", "channels", "queues", "exchanges", "streams",
    "dead-letters", "delayed", "topics", "retained", "publishers", "publishers/transactions",
    "publishers/producers", "search", "replay", "webhooks", "live", "try", "policies",
    "policies/operator-policies", "vhosts", "limits", "limits/users", "tokens", "feature-flags",
    "certificates", "audit", "users", "definitions",
)  # fmt: skip
_OF_ADMINISTRATORS = ("audit", "users", "definitions")
_OF_MONITORING = ("certificates",)


def pages_of(tag: str) -> list[str]:
    """The pages that a user with this tag alone sees."""
    if tag == "administrator":
        return list(PAGES)
    hidden = _OF_ADMINISTRATORS + (() if tag == "monitoring" else _OF_MONITORING)
    return [name for name in PAGES if name not in hidden]


def sign_in(page: Page, user: str = "guest", password: str = "guest", at: str = "") -> None:
    page.goto(f"/{at}")
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


_GO = """([place, loading, frames, limit]) => new Promise((done, failed) => {
  location.hash = place;
  const end = performance.now() + limit;
  let calm = 0;
  const look = () => {
    const main = document.querySelector("main");
    const headings = [...main.querySelectorAll("h1")];
    const heading = headings.length === 1 && headings[0].checkVisibility();
    calm = heading && !window.waited && !main.textContent.includes(loading) ? calm + 1 : 0;
    if (calm === frames) {
      done([...main.querySelectorAll("[role=alert]")].map((one) => one.innerText.trim()));
    } else if (performance.now() > end) {
      failed(new Error(`${place} shows ${headings.length} headings: ${main.innerText}`));
    } else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""


def go(page: Page, place: str, *, loading: str = "Loading …", frames: int = 2) -> list[str]:
    """Open a page of the console, as a link does; its alerts, when it has a heading and loads nothing.

    It is so for some frames. One script: each question to a page costs CPU of five processes.
    """
    alerts: list[str] = page.evaluate(_GO, [place, loading, frames, 1000 * LIMIT_S])
    return alerts


def publish(gateway: Gateway, queue: str, *bodies: bytes, headers: dict[str, str] | None = None) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with closing(pika.BlockingConnection(parameters)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(headers=headers), mandatory=True)


def leave(page: Page) -> None:
    """Leave the console: a page that is looked at asks for things again, also when the test deletes them."""
    page.goto("about:blank")
