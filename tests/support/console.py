"""The console in a test: its pages, signing in, messages to look at."""

from __future__ import annotations

from contextlib import closing

import pika
from playwright.sync_api import Page, expect

from tests.support.brokers import Gateway

__all__ = ["HOSTILE", "PAGES", "leave", "pages_of", "publish", "sign_in"]

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
