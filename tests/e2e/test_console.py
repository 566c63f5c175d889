"""The web console in Chromium: signing in, every page, its actions, by keyboard, with hostile names."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway, free_port
from tests.support.browser import chromium, obstacles, watched_page
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

HOSTILE = "<img src=x onerror=alert(1)>{{7*7}}${7*7}\u202egnp"
"""A tag that runs a script, braces of templates, a mark that turns text around."""
PAGES = (
    "overview", "connections", "channels", "queues", "exchanges", "streams", "dead-letters", "live",
    "policies", "policies/operator-policies", "vhosts", "users",
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("console"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


@pytest.fixture
def page(gateway: Gateway, browser: Browser) -> Iterator[Page]:
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        yield page


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


# Files


def test_the_files_need_no_login_and_are_kept_by_the_browser(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with httpx.Client(base_url=base, timeout=LIMIT_S) as http:
        index = http.get("/")
        assert index.status_code == 200 and index.headers["content-type"].startswith("text/html")
        names = sorted(set(re.findall(r'(?:href|src)="(console/[^"]+)"', index.text)))
        assert len(names) > 5
        first = [index, *(http.get(f"/{name}") for name in names)]
        for answer in first:
            assert answer.status_code == 200
            policy = dict(
                part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == "'self'"
            assert policy["require-trusted-types-for"] == "'script'"
            assert "unsafe" not in str(policy)
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = http.get(answer.url, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert sum(int(answer.headers["content-length"]) for answer in first) < 100_000
        plain = http.get("/console/app.js", headers={"accept-encoding": "identity"})
        assert (
            "content-encoding" not in plain.headers and plain.content == http.get("/console/app.js").content
        )
        assert http.head("/").status_code == 200
        for path in (
            "/console/vendor/SHA256SUMS",
            "/console/files.py",
            "/console/..%2Ffiles.py",
            "/console/",
        ):
            assert http.get(path).status_code == 404, path
        assert http.post("/").status_code in (401, 405)


def test_the_types_that_the_modules_say_fit() -> None:
    node = Path(__file__).parent / "node"
    said = subprocess.run(
        [node / "node_modules/.bin/tsc", "--pretty", "false", "--project", node],
        capture_output=True,
        text=True,
    )
    # The files of others are read for what they export, and are checked, too.
    wrong = [line for line in said.stdout.splitlines() if "/www/" in line and "/www/vendor/" not in line]
    assert wrong == [] and "error TS18003" not in said.stdout, said.stdout[:2000]


# Signing in


def test_signing_in_and_out(gateway: Gateway, page: Page) -> None:
    page.goto("/")
    page.get_by_label("User name").fill("guest")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("Login failed")
    page.get_by_label("Password").fill("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    assert "guest" not in json.dumps(page.evaluate("[{...localStorage}, {...sessionStorage}, location.href]"))
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["expires"] == -1
    page.reload()
    expect(page.get_by_text("Messages that wait")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.context.add_cookies([cookie])  # somebody kept it
    page.reload()
    expect(page.get_by_label("Password")).to_be_visible()


def test_a_session_that_ends_is_said_and_gone_on_from(
    gateway: Gateway, browser: Browser, api: Api, unique: str
) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, unique, "p", at="#/queues")
        assert api.status("PUT", f"users/{unique}", {"password": "q", "tags": "monitoring"}) == 204
        expect(page.get_by_text("The session has ended. Sign in again.")).to_be_visible()
        page.get_by_label("User name").fill(unique)
        page.get_by_label("Password").fill("q")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Queues")).to_be_visible()  # where it was
    assert api.status("DELETE", f"users/{unique}") == 204


def test_a_gateway_that_is_away_is_said_and_gone_on_with(
    tmp_path: Path, browser: Browser, unique: str
) -> None:
    port = free_port()
    with Gateway(tmp_path, settings={**SETTINGS, "management.listen": f"127.0.0.1:{port}"}) as gateway:
        with watched_page(browser, f"http://127.0.0.1:{port}", refusals=True) as page:
            sign_in(page, at="#/queues")
            expect(page.get_by_role("status")).to_have_text("0 of 0")
            gateway.terminate()
            expect(page.get_by_role("alert")).to_contain_text("does not answer")
            gateway.start()
            with closing(Api(gateway)) as api:
                assert api.status("PUT", f"queues/%2F/{unique}", {}) == 201
            # Neither the page nor its user does anything for that, and the session is the same.
            expect(page.get_by_role("link", name=unique)).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)


def test_over_tls_with_several_workers(tmp_path: Path, browser: Browser) -> None:
    pair = Authority(tmp_path).server()
    settings = {
        **SETTINGS,
        "server.workers": "2",
        "management.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(tmp_path / "data", settings=settings) as gateway:
        with watched_page(browser, f"https://127.0.0.1:{gateway.ports['management_tls']}") as page:
            sign_in(page, at="#/queues")
            expect(page.get_by_role("status")).to_have_text("0 of 0")
            (cookie,) = page.context.cookies()
            assert cookie["secure"] and cookie["name"].startswith("__Host-")
            assert page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol") == "h2"
            page.goto("/#/overview")
            expect(page.get_by_role("heading", name="penstock-1@")).to_be_visible()
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_label("Password")).to_be_visible()


# Pages


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
                page.goto(f"/#/{name}")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                expect(page.get_by_text("Loading …")).to_have_count(0)
                expect(page.get_by_role("alert")).to_have_count(0)
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
            page.wait_for_function(f"getComputedStyle(document.body).backgroundColor !== '{ground}'")
    for path in (
        f"queues/%2F/{unique}",
        f"queues/%2F/{unique}d",
        f"queues/%2F/{unique}s",
        f"policies/%2F/{unique}",
    ):
        assert api.status("DELETE", path) == 204


def test_a_list_is_filtered_sorted_and_paged_by_its_address(page: Page, api: Api, unique: str) -> None:
    names = [f"{unique}-{number:03}" for number in range(120)]
    assert api.status("PUT", f"vhosts/{unique}") == 201
    queues = [{"name": name, "durable": True, "auto_delete": False, "arguments": {}} for name in names]
    assert api.status("POST", f"definitions/{unique}", {"queues": queues}) < 300
    sign_in(page, at="#/queues")
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
    page.get_by_label("Payload").fill("x")
    page.get_by_role("dialog").get_by_role("button", name="Publish a message").click()
    expect(page.get_by_role("alert")).to_contain_text("No queue takes")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Bind", exact=True).click()
    page.get_by_label("Its name").fill(unique)
    page.get_by_label("Routing key").fill("a.*")
    page.get_by_role("dialog").get_by_role("button", name="Bind", exact=True).click()
    expect(page.get_by_role("region", name="Bindings from here")).to_contain_text("a.*")
    page.get_by_role("button", name="Publish a message").click()
    page.get_by_label("Routing key").fill("a.b")
    page.get_by_label("Payload").fill("x")
    page.get_by_role("dialog").get_by_role("button", name="Publish a message").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api.get(f"queues/%2F/{unique}")["messages"] == 1
    page.get_by_role("button", name="Unbind").click()
    page.get_by_role("dialog").get_by_role("button", name="Unbind").click()
    expect(page.get_by_role("region", name="Bindings from here")).to_have_count(0)
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
    publish(gateway, unique, b"four")  # "three" dies after the preview
    page.get_by_role("button", name="Move 2 messages").click()
    page.get_by_role("dialog").get_by_role("button", name="Move 2 messages").click()
    expect(page.get_by_role("status")).to_contain_text("2 moved.")
    left = api.send(
        "POST", f"queues/%2F/{dead}/get", {"count": 9, "ackmode": "ack_requeue_true", "encoding": "auto"}
    )
    kept = {one["payload"]: "x-death" in (one["properties"] or {}).get("headers", {}) for one in left.json()}
    assert kept == {"three": True, "one": False, "two": False}
    for name in (unique, dead):
        assert api.status("DELETE", f"queues/%2F/{name}") == 204


def test_messages_and_log_lines_are_followed_as_they_come(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    sign_in(page, at="#/live")
    page.get_by_label("Routing keys").fill(f"{unique}.*")
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
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


def test_a_refusal_to_follow_is_shown(gateway: Gateway, browser: Browser, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    nothing = dict.fromkeys(("configure", "write", "read"), "")
    assert api.status("PUT", f"permissions/%2F/{unique}", nothing) == 201
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}", refusals=True) as page:
        sign_in(page, unique, "p", at="#/live")
        assert "log" not in page.get_by_label("Follow").inner_text()
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
    assert api.status("DELETE", f"users/{unique}") == 204


def test_everything_by_keyboard(gateway: Gateway, page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    publish(gateway, unique, b"seen by keyboard")
    page.goto("/")
    expect(page.get_by_label("User name")).to_be_focused()
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.type("gq")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(page.locator("[data-search]")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(unique)
    expect(page.get_by_role("status")).to_contain_text("1 of")

    def tab_to(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == name:
                return
        raise AssertionError(f"{name} is not reached")

    tab_to(unique)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Queue {unique}")).to_be_visible()
    tab_to("Look at messages")
    page.keyboard.press("Enter")
    expect(page.get_by_text("seen by keyboard")).to_be_visible()
    assert api.status("DELETE", f"queues/%2F/{unique}") == 204


# Rights


@pytest.mark.parametrize("tag", ["management", "policymaker", "monitoring"])
def test_each_page_as_each_tag(gateway: Gateway, page: Page, api: Api, unique: str, tag: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": tag}) == 201
    if tag != "monitoring":  # who sees everything may have no right in any vhost
        rights = {"configure": "", "write": "", "read": ".*"}
        assert api.status("PUT", f"permissions/%2F/{unique}", rights) == 201
    sign_in(page, unique, "p")
    pages = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    assert "Queues" in pages and "Users" not in pages
    for name in PAGES[:-1]:
        if tag == "monitoring" and name in ("streams", "dead-letters"):
            continue  # messages are for who has rights
        page.goto(f"/#/{name}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
    page.goto("/#/policies")
    expect(page.get_by_role("heading", name="Policies")).to_be_visible()
    expect(page.get_by_role("button", name="Add a policy")).to_have_count(int(tag == "policymaker"))
    page.goto("/#/users")
    expect(page.get_by_text("There is no such page, or your user may not see it.")).to_be_visible()
    assert api.status("DELETE", f"users/{unique}") == 204


# Hostile names


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
    publish(gateway, name, name.encode(), b"<script>alert(2)</script>\xff", headers={name: name})
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    client.username_pw_set(name, "p")
    client.connect("127.0.0.1", gateway.mqtt_port)
    client.loop_start()
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

        for address in ("connections", "queues", "exchanges", "policies", "vhosts", "users", "streams"):
            shows(f"#/{address}")
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
    client.disconnect()
    client.loop_stop()
    for path in (
        f"queues/%2F/{encoded}",
        f"queues/%2F/{encoded}s",
        f"exchanges/%2F/{encoded}",
        f"policies/%2F/{encoded}",
        f"users/{encoded}",
        f"vhosts/{encoded}",
    ):
        assert api.status("DELETE", path) == 204
