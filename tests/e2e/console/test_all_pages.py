"""Every page of the console: in use and accessible, for each tag of a user, with hostile names."""

from __future__ import annotations

import re
from contextlib import closing
from urllib.parse import quote

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.console import HOSTILE, PAGES, go, leave, pages_of, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


_CHANGES = re.compile("^(Add|Bind|Delete|Publish|Purge|Move|Replay into|Limit a|Import)")
"""Names of buttons that change something."""
OF_MESSAGES = ("streams", "dead-letters", "delayed", "search", "replay", "live", "try")
"""Pages for who has permissions in a virtual host."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_of_a_gateway_in_use(
    gateway: Gateway, browser: Browser, api: Api, unique: str, scheme: str
) -> None:
    """Without an error, and without an obstacle for anybody."""
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{unique}d"}
    assert api.status("PUT", f"queues/%2F/{unique}", {"arguments": rules}) == 201
    assert api.status("PUT", f"queues/%2F/{unique}d", {}) == 201
    assert (
        api.status("PUT", f"queues/%2F/{unique}s", {"arguments": {"x-queue-type": "stream"}, "durable": True})
        == 201
    )
    assert (
        api.status("PUT", f"policies/%2F/{unique}", {"pattern": "^$", "definition": {"max-length": 1}}) == 201
    )
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port, heartbeat=600)
    with closing(pika.BlockingConnection(parameters)) as connection:
        connection.channel().basic_consume(unique, lambda *_: None)
        with watched_page(browser, base, scheme=scheme) as page:
            page.goto("/")
            expect(page.get_by_label("Password")).to_be_visible()
            assert obstacles(page) == []
            sign_in(page)
            for name in (*PAGES, f"queues/%2F/{unique}", "exchanges/%2F/amq.topic", "users/guest",
                         f"streams/%2F/{unique}s", f"dead-letters/%2F/{unique}d"):  # fmt: skip
                assert go(page, f"#/{name}") == [], name
                assert obstacles(page) == [], name
            page.goto("/#/connections")
            page.get_by_role("region", name="Connections").get_by_role("link").click()
            expect(page.get_by_text("Bytes per second")).to_be_visible()
            assert obstacles(page) == []
            page.get_by_role("region", name="Channels").get_by_role("link").click()
            expect(
                page.get_by_role("region", name="Consumers").get_by_role("link", name=unique)
            ).to_be_visible()
            assert obstacles(page) == []
            page.goto("/#/queues")
            page.get_by_role("button", name="Add a queue").click()
            expect(page.get_by_role("dialog")).to_be_visible()
            assert obstacles(page) == []
            page.keyboard.press("Escape")
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is (scheme == "dark")
            page.get_by_label("Colours").select_option("light" if scheme == "dark" else "dark")
            # A function: the page's policy does not let Playwright evaluate a text again and again.
            page.wait_for_function(
                "(ground) => getComputedStyle(document.body).backgroundColor !== ground", arg=ground
            )
    for path in (
        f"queues/%2F/{unique}",
        f"queues/%2F/{unique}d",
        f"queues/%2F/{unique}s",
        f"policies/%2F/{unique}",
    ):
        assert api.status("DELETE", path) == 204


@pytest.mark.parametrize(
    ("tag", "has_vhost"),
    [
        ("management", True),
        ("policymaker", True),
        ("monitoring", True),
        ("monitoring", False),  # who sees everything may have no right in any vhost
        ("administrator", False),
        ("policymaker", False),
        ("management", False),
    ],
)
def test_each_page_as_each_tag(
    gateway: Gateway, page: Page, api: Api, unique: str, tag: str, has_vhost: bool
) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": tag}) == 201
    if has_vhost:
        rights = {"configure": "", "write": "", "read": ".*"}
        assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    sign_in(page, unique, "p")
    pages = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    assert "Queues" in pages and ("Users" in pages) is (tag == "administrator")
    sees_all = tag in ("monitoring", "administrator")
    for name in pages_of(tag):
        assert go(page, f"#/{name}") == [], name
        if sees_all and not has_vhost:
            told = page.get_by_text("Messages of / are for users who have permissions there.")
            expect(told).to_have_count(int(name in OF_MESSAGES))
        if not has_vhost and not sees_all:
            # There is nothing that it may change.
            expect(page.get_by_text("You may enter no virtual host.")).to_be_visible()
            expect(page.locator("main").get_by_role("button", name=_CHANGES)).to_have_count(0)
    if has_vhost:
        _everything_that_is_offered_can_be_followed(page, tag)
        _a_reader_has_no_dead_control(page, api, unique)
    page.goto("/#/policies")
    expect(page.get_by_role("heading", name="Policies")).to_be_visible()
    expect(page.get_by_role("button", name="Add a policy")).to_have_count(
        int((tag == "policymaker" and has_vhost) or tag == "administrator")
    )
    page.goto("/#/users")
    refused = page.get_by_text("There is no such page, or your user may not see it.")
    expect(page.get_by_role("heading", name="Users").or_(refused)).to_be_visible()
    expect(refused).to_have_count(int(tag != "administrator"))
    leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204


def _everything_that_is_offered_can_be_followed(page: Page, tag: str) -> None:
    of_all = ["log", "findings"] if tag == "monitoring" else []
    offers = ["exchange", "default", "topic", "queue", "stream", "webhooks", *of_all, "slow"]
    page.goto("/#/live")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    shown = page.get_by_label("Follow").get_by_role("option")
    expect(shown).to_have_count(len(offers))
    assert [one.get_attribute("value") for one in shown.all()] == offers
    for offer in offers:
        page.goto(f"/#/live?of={offer}")
        if offer in ("queue", "stream"):  # there is none yet
            expect(page.get_by_role("textbox", name=offer.title())).to_be_visible()
            continue
        if offer in ("findings", "slow"):
            expect(page.get_by_text("Loading …").or_(page.get_by_role("alert"))).to_have_count(0)
            expect(page.get_by_text("All is well").or_(page.get_by_role("table"))).to_be_visible()
            continue
        page.get_by_role("button", name="Follow").click()
        expect(page.get_by_role("status")).to_contain_text("so far")
    page.goto("/#/overview")


def _a_reader_has_no_dead_control(page: Page, api: Api, unique: str) -> None:
    """A user who may only read: buttons that the gateway would refuse are not there."""
    stream = {"arguments": {"x-queue-type": "stream"}, "durable": True}
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    assert api.status("PUT", f"queues/%2F/{unique}s", stream) == 201
    controls = page.locator("main").get_by_role("button", name=_CHANGES)
    for place, left in (
        ("queues", []),
        ("exchanges", []),
        ("streams", []),
        (f"queues/%2F/{unique}", ["Purge"]),
        (f"streams/%2F/{unique}s", ["Add a subscription"]),
        ("exchanges/%2F/amq.direct", []),
    ):
        with page.expect_response(lambda answer: "/api/may?" in answer.url):
            page.goto(f"/#/{place}")
        expect(controls).to_have_text(left)
    leave(page)
    for queue in (unique, f"{unique}s"):
        assert api.status("DELETE", f"queues/%2F/{queue}") == 204
    page.goto("/#/overview")


def test_hostile_names_are_shown_as_they_are(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    name = HOSTILE + unique
    encoded = quote(name, safe="")
    assert api.status("PUT", f"vhosts/{encoded}", {"description": name}) == 201
    assert api.status("PUT", f"users/{encoded}", {"password": "p", "tags": ""}) == 201
    for vhost in ("%2F", encoded):
        assert api.status(
            "PUT", f"permissions/{vhost}/{encoded}", dict.fromkeys(("configure", "write", "read"), ".*")
        ) in (201, 204)
    assert api.status("PUT", f"queues/%2F/{encoded}", {"arguments": {"x-dead-letter-exchange": name}}) == 201
    assert (
        api.status(
            "PUT", f"queues/%2F/{encoded}s", {"durable": True, "arguments": {"x-queue-type": "stream"}}
        )
        == 201
    )
    assert api.status("PUT", f"exchanges/%2F/{encoded}", {"type": "topic"}) == 201
    assert api.status("POST", f"bindings/%2F/e/{encoded}/q/{encoded}", {"routing_key": name}) == 201
    rule = {"pattern": f"^{unique}$", "definition": {"dead-letter-routing-key": name}, "apply-to": "queues"}
    assert api.status("PUT", f"policies/%2F/{encoded}", rule) == 201
    assert api.status("PUT", f"vhost-limits/{encoded}/max-queues", {"value": 100_000}) == 204
    assert api.status("PUT", f"user-limits/{encoded}/max-channels", {"value": 100_000}) == 204
    publish(gateway, name, name.encode(), b"<script>alert(2)</script>\xff", headers={name: name})
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    client.username_pw_set(name, "p")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
    client.publish(name, f"value {name}", 1, retain=True).wait_for_publish(60)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", gateway.amqp_port, client_properties={"connection_name": name, "product": name}
    )
    with closing(pika.BlockingConnection(parameters)) as connection:
        connection.channel().basic_consume(name, lambda *_: None, consumer_tag=name, auto_ack=False)
        sign_in(page)

        def shows(address: str) -> None:
            page.goto(f"/{address}")
            expect(page.locator("main").get_by_text(name).first).to_be_visible()
            assert page.locator("main img, main script").count() == 0

        for address in (
            "connections",
            "queues",
            "exchanges",
            "policies",
            "vhosts",
            "users",
            "streams",
            "limits",
            "limits/users",
            "topics",
        ):
            shows(f"#/{address}")
        expect(page.get_by_text(f"value {name}")).to_be_visible()
        page.goto(f"/#/tokens?user={encoded}")
        expect(page.get_by_role("heading", name=f"Tokens of {name}")).to_be_visible()
        shows(f"#/queues/%2F/{encoded}")
        page.get_by_role("button", name="Look at messages").click()
        shows(f"#/exchanges/%2F/{encoded}")
        shows(f"#/users/{encoded}")
        shows(f"#/streams/%2F/{encoded}s")
        shows(f"#/dead-letters/%2F/{encoded}")
        page.get_by_role("button", name="Preview").click()
        shows("#/connections")
        page.get_by_role("link", name=name).click()
        expect(page.get_by_text("Said about itself")).to_be_visible()
        page.get_by_label("Virtual host").select_option(name)
        shows("#/queues")
        client.publish(name, "", 1, retain=True).wait_for_publish(60)
        page.goto("/#/overview")
    client.disconnect()
    page.goto("/#/connections/closed")
    expect(page.get_by_role("region", name="Closed connections").get_by_text(name).first).to_be_visible()
    client.loop_stop()
    leave(page)
    for path in (
        f"queues/%2F/{encoded}",
        f"queues/%2F/{encoded}s",
        f"exchanges/%2F/{encoded}",
        f"policies/%2F/{encoded}",
        f"users/{encoded}",
        f"vhosts/{encoded}",
    ):
        assert api.status("DELETE", path) == 204
