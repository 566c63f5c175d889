"""The console in Chinese: the browser's language or a choice, every page, and none of it in English."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import PAGES, go, leave, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

_LABELS = "h2, button, th, dt, summary, label > span, small, main p.quiet, option[value='']"
"""Texts of the console itself; data is as the gateway has it."""
_LEFT = re.compile(r"TLS|–|Webhook|[\W\d]*|penstock\S*@\S+|user, queue\.delete|g \w|Ctrl\+K")
"""Texts that stay: names, marks, keys."""


def _misses(page: Page) -> list[str]:
    found: list[str] = page.evaluate("import('/console/words.js').then(({ misses }) => [...misses])")
    return found


def _english(page: Page) -> list[str]:
    texts = (text.strip() for text in page.locator(_LABELS).all_text_contents())
    return [text for text in texts if not re.search(r"[\u4e00-\u9fff]", text) and not _LEFT.fullmatch(text)]


def test_every_page_in_chinese(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    stream = {"arguments": {"x-queue-type": "stream"}, "durable": True}
    assert api.status("PUT", f"queues/%2F/{unique}s", stream) == 201
    publish(gateway, unique, b"hello")
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with watched_page(browser, base, locale="zh-CN") as page:
        page.goto("/")
        expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
        page.get_by_label("用户名").fill("guest")
        page.get_by_label("密码").fill("guest")
        assert _english(page) == []
        page.get_by_role("button", name="登录").click()
        expect(page.get_by_role("navigation", name="页面")).to_be_visible()
        for name in (*PAGES, f"queues/%2F/{unique}", "exchanges/%2F/amq.topic", "users/guest",
                     f"streams/%2F/{unique}s", f"dead-letters/%2F/{unique}"):  # fmt: skip
            assert go(page, f"#/{name}", loading="正在加载") == [], name
            assert _english(page) == [], name
        page.goto(f"/#/queues/%2F/{unique}")
        page.get_by_role("button", name="查看消息").click()
        expect(page.get_by_role("region", name="消息").get_by_text("hello")).to_be_visible()
        assert obstacles(page) == []
        page.get_by_role("region", name="消息").get_by_role("link").click()
        expect(page.get_by_text("日志中的信息已全部显示。")).to_be_visible()
        assert _english(page) == []
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="快捷键")).to_be_visible()
        assert _misses(page) == []
        leave(page)
    for queue in (unique, f"{unique}s"):
        assert api.status("DELETE", f"queues/%2F/{queue}") == 204


def test_the_choice_is_kept_and_taken_back(gateway: Gateway, page: Page) -> None:
    """By keyboard. A browser in English loads no Chinese."""
    loaded = "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/zh.js'))"
    sign_in(page, at="#/queues")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    assert page.evaluate(loaded) is False
    page.get_by_label("Language").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("heading", name="队列")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="队列")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    assert page.evaluate(loaded) is True
    assert page.evaluate("({...localStorage})") == {"language": "zh-CN"}
    page.get_by_label("Language").select_option("")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    assert page.evaluate("({...localStorage})") == {}
