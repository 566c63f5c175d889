"""The pages of the console and their actions."""

from __future__ import annotations

from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import watched_page
from tests.support.console import leave, publish, sign_in
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_a_list_is_filtered_sorted_and_paged_by_its_address(page: Page, api: Api, unique: str) -> None:
    names = [f"{unique}-{number:03}" for number in range(120)]
    assert api.status("PUT", f"vhosts/{unique}") == 201
    queues = [{"name": name, "durable": True, "auto_delete": False, "arguments": {}} for name in names]
    assert api.status("POST", f"definitions/{unique}", {"queues": queues}) < 300
    sign_in(page, at="#/queues")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(unique)
    region = page.get_by_role("region", name="Queues")
    expect(page.get_by_role("status")).to_contain_text("120 of")
    expect(region.get_by_role("row")).to_have_count(101)
    roles = page.evaluate(
        "[...document.querySelectorAll('main [role]')].map((one) => one.getAttribute('role'))"
    )
    assert roles[:3] == ["search", "status", "region"]
    page.get_by_role("button", name="Next").click()
    expect(region.get_by_role("row")).to_have_count(21)
    page.get_by_role("button", name="Name").click()
    page.get_by_role("button", name="Name").click()
    expect(region.get_by_role("row").nth(1)).to_contain_text(names[-1])
    expect(page.get_by_role("columnheader", name="Name")).to_have_attribute("aria-sort", "descending")
    address = page.url
    page.goto("/#/overview")
    page.goto(address)
    expect(region.get_by_role("row").nth(1)).to_contain_text(names[-1])
    page.go_back()
    expect(page.get_by_text("Messages per second")).to_be_visible()
    leave(page)
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def test_a_queue_from_its_making_to_its_end(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    sign_in(page, at="#/queues")
    page.get_by_role("button", name="Add a queue").click()
    page.get_by_role("dialog").get_by_label("Name").fill(unique)
    page.get_by_label("Arguments, as JSON").fill("{")
    page.get_by_role("dialog").get_by_role("button", name="Add a queue").click()
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    page.get_by_label("Arguments, as JSON").fill('{"x-max-length": 5}')
    with page.expect_response("**/api/queues?*"):
        pass  # the list behind the dialog is drawn again
    expect(page.get_by_label("Arguments, as JSON")).to_have_value('{"x-max-length": 5}')
    page.get_by_role("dialog").get_by_role("button", name="Add a queue").click()
    page.get_by_role("link", name=unique, exact=True).click()
    expect(page.get_by_role("heading", name=f"Queue {unique}")).to_be_visible()
    page.get_by_role("button", name="Publish a message").click()
    page.get_by_label("Payload").fill("first <b>message</b>")
    page.get_by_role("dialog").get_by_role("button", name="Publish a message").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    publish(gateway, unique, b"\x00\xff" * 20, headers={"k": "v"})
    # Looking changes nothing that the API or a consumer could see.
    before = api.get(f"queues/%2F/{unique}")
    page.get_by_role("button", name="Look at messages").click()
    messages = page.get_by_role("region", name="Messages", exact=True)
    expect(messages.get_by_text("first <b>message</b>")).to_be_visible()
    expect(messages).to_contain_text('{"k":"v"}')
    expect(messages).to_contain_text("0000  00 ff 00 ff")
    after = api.get(f"queues/%2F/{unique}")
    for name in ("messages_ready", "messages_unacknowledged"):
        assert after[name] == before[name]
    assert after["message_stats"]["deliver_get"] == after["message_stats"]["redeliver"] == 0
    page.get_by_role("button", name="Purge").click()
    page.get_by_label(f"Type {unique} to confirm").fill("another")
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label(f"Type {unique} to confirm").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api.get(f"queues/%2F/{unique}")["messages"] == 0
    page.get_by_role("button", name="Delete").click()
    page.get_by_label(f"Type {unique} to confirm").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    assert api.status("GET", f"queues/%2F/{unique}") == 404


def test_an_exchange_is_made_bound_and_published_to(page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    sign_in(page, at="#/exchanges")
    page.get_by_role("button", name="Add an exchange").click()
    page.get_by_role("dialog").get_by_label("Name").fill(unique)
    page.get_by_label("Type").select_option("topic")
    page.get_by_role("dialog").get_by_role("button", name="Add an exchange").click()
    page.get_by_role("link", name=unique, exact=True).click()
    page.get_by_role("button", name="Publish a message").click()
    page.get_by_role("dialog").get_by_label("Payload").fill("x")
    page.get_by_role("dialog").get_by_role("button", name="Publish a message").click()
    expect(page.get_by_role("alert")).to_contain_text("No queue takes")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Bind", exact=True).click()
    page.get_by_label("Its name").fill(unique)
    page.get_by_role("dialog").get_by_label("Routing key").fill("a.*")
    page.get_by_role("dialog").get_by_role("button", name="Bind", exact=True).click()
    expect(page.get_by_role("region", name="Bindings from here")).to_contain_text("a.*")
    page.get_by_role("button", name="Publish a message").click()
    page.get_by_role("dialog").get_by_label("Routing key").fill("a.b")
    page.get_by_role("dialog").get_by_label("Payload").fill("x")
    page.get_by_role("dialog").get_by_role("button", name="Publish a message").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api.get(f"queues/%2F/{unique}")["messages"] == 1
    page.get_by_role("button", name="Unbind").click()
    page.get_by_role("dialog").get_by_role("button", name="Unbind").click()
    expect(page.get_by_role("region", name="Bindings from here")).to_have_count(0)
    leave(page)
    assert api.status("DELETE", f"exchanges/%2F/{unique}") == 204
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_redrive_moves_what_the_preview_listed(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    dead = f"{unique}.dead"
    rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-max-length": 1}
    assert api.status("PUT", f"queues/%2F/{dead}", {"durable": True}) == 201
    assert api.status("PUT", f"queues/%2F/{unique}", {"arguments": rules, "durable": True}) == 201
    publish(gateway, unique, b"one", b"two", b"three")
    sign_in(page, at="#/dead-letters")
    row = page.get_by_role("row").filter(has_text=dead)
    expect(row).to_contain_text(unique)
    row.get_by_role("link").click()
    page.get_by_label("To, instead of where each died").fill(dead)  # they would be too many where they died
    page.get_by_role("button", name="Preview").click()
    preview = page.get_by_role("region", name="Messages that would move")
    expect(preview.get_by_role("row")).to_have_count(3)
    expect(preview).to_contain_text("maxlen")
    for body in ("one", "two"):
        expect(preview.get_by_text(body, exact=True)).to_be_visible()
    publish(gateway, unique, b"four")  # "three" dies after the preview, and somebody takes "one"
    got = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert [one["payload"] for one in api.send("POST", f"queues/%2F/{dead}/get", got).json()] == ["one"]
    page.get_by_role("button", name="Move 2 messages").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 messages").click()
    expect(page.get_by_role("status")).to_have_text("1 moved. 1 of those listed was gone from the queue.")
    left = api.send("POST", f"queues/%2F/{dead}/get", {**got, "count": 9, "ackmode": "ack_requeue_true"})
    kept = {one["payload"]: "x-death" in (one["properties"] or {}).get("headers", {}) for one in left.json()}
    assert kept == {"three": True, "two": False}
    leave(page)
    for name in (unique, dead):
        assert api.status("DELETE", f"queues/%2F/{name}") == 204


def test_messages_and_log_lines_are_followed_as_they_come(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    sign_in(page, at="#/live")
    page.get_by_label("Routing keys").fill(f"{unique}.*")
    with page.expect_response("**/tail?*"):
        page.get_by_role("button", name="Follow").click()
    expect(page.get_by_text("Nothing yet.")).to_be_visible()
    send = "exchanges/%2F/amq.topic/publish"

    def publish_one(text: str) -> None:
        body = {"properties": {}, "routing_key": f"{unique}.k", "payload": text, "payload_encoding": "string"}
        assert api.status("POST", send, body) == 200

    with page.expect_response("**/tail?*"):
        page.reload()  # the address says what is followed
    publish_one("<i>first</i>")
    expect(page.get_by_text("<i>first</i>", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    publish_one("second")
    publish_one("third")
    expect(page.get_by_role("status")).to_contain_text("1 so far")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("status")).to_contain_text("3 so far")
    assert page.get_by_role("row").nth(1).inner_text().endswith("third")  # the newest first
    page.get_by_label("Follow").select_option("audit")
    with page.expect_response("**/tail?events=audit"):
        page.get_by_role("button", name="Follow").click()
    assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
    expect(page.get_by_role("row").filter(has_text=unique)).to_contain_text("queue.declare")
    leave(page)
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_refusal_to_follow_is_shown(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    others = {"configure": "", "write": "", "read": "^others"}
    assert api.status("PUT", f"permissions/%2F/{unique}", others) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, unique, "p", at="#/live")
        assert "log" not in page.get_by_label("Follow").inner_text()
        exchange = page.get_by_label("Exchange", exact=True)
        expect(exchange).to_have_value("")  # none is offered that this user may not read
        exchange.fill("amq.topic")
        page.get_by_role("button", name="Follow").click()
        expect(page.get_by_role("alert")).to_contain_text("amq.topic")
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_stream_and_its_subscription(page: Page, api: Api, unique: str) -> None:
    sign_in(page, at="#/streams")
    page.get_by_role("button", name="Add a stream").click()
    page.get_by_role("dialog").get_by_label("Name").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Add a stream").click()
    page.get_by_role("link", name=unique, exact=True).click()
    page.get_by_role("button", name="Add a subscription").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("reader")
    page.get_by_role("dialog").get_by_role("button", name="Add a subscription").click()
    row = page.get_by_role("row").filter(has_text="reader")
    expect(row).to_contain_text("runs")
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Move").click()
    page.get_by_label("Begin at").fill("latest")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_label(f"Type {unique} to confirm").fill(unique)
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Streams of /")).to_be_visible()
    assert api.status("GET", f"queues/%2F/{unique}") == 404


def test_a_user_gets_rights_and_a_policy_is_changed(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    sign_in(page, at="#/users")
    page.get_by_role("button", name="Add a user").click()
    page.get_by_role("dialog").get_by_label("Name").fill(unique)
    page.get_by_role("dialog").get_by_label("Password").fill("p")
    page.get_by_role("dialog").get_by_label("Tags").fill("management")
    page.get_by_role("dialog").get_by_role("button", name="Add a user").click()
    page.get_by_role("link", name=unique, exact=True).click()
    page.get_by_role("button", name="Set permissions").click()
    page.get_by_label("May write").fill("^x")
    page.get_by_role("dialog").get_by_role("button", name="Set permissions").click()
    expect(page.get_by_role("region", name="Permissions", exact=True)).to_contain_text("^x")
    assert api.get(f"permissions/%2F/{unique}")["write"] == "^x"
    page.get_by_role("button", name="Set tags").click()
    page.get_by_role("dialog").get_by_label("Tags").fill("monitoring, policymaker")
    page.get_by_role("dialog").get_by_role("button", name="Set tags").click()
    expect(page.get_by_text("monitoring, policymaker")).to_be_visible()
    with closing(Api(gateway, unique, "p")) as other:
        assert other.get("whoami")["tags"] == ["monitoring", "policymaker"]  # the password is still the same
    page.goto("/#/policies")
    page.get_by_role("button", name="Add a policy").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill(unique)
    page.get_by_label("Pattern of names").fill(f"^{unique}$")
    page.get_by_label("Rules, as JSON").fill('{"max-length": 3}')
    page.get_by_role("dialog").get_by_role("button", name="Add a policy").click()
    row = page.get_by_role("row").filter(has_text=unique)
    expect(row).to_contain_text('{"max-length":3}')
    row.get_by_role("button", name="Change").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(row).to_contain_text("7")
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204
