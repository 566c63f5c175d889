"""Every control of every page, as each tag: none is shown that the gateway refuses, and none is dead.

A page is opened, each of its buttons is pressed once, its dialog is filled in and sent, and the things that
it may have changed are made again before the next one. A button that the table does not know fails the test,
so a new one has to be added here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from urllib.parse import quote

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from playwright.sync_api import Browser, Locator, Page, Response, expect

from tests.support.brokers import Gateway
from tests.support.browser import watched_page
from tests.support.console import PAGES, go, sign_in
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")

V = "v"
"""The vhost with something of everything."""
ALL = dict.fromkeys(("configure", "write", "read"), ".*")
NONE = dict.fromkeys(("configure", "write", "read"), "")
MINE = {"configure": "^mine", "write": "^(mine|amq)", "read": "^(q|s|mine)"}
STREAM = {"durable": True, "arguments": {"x-queue-type": "stream"}}
RULE = {"pattern": "^nothing$", "definition": {"max-length": 9}, "apply-to": "queues"}
FIELDS: dict[str, dict[str, str]] = {
    **{
        key: {}
        for key in (
            "Delete",
            "Purge",
            "Unbind",
            "Clear",
            "Pause",
            "Resume",
            "Commit",
            "Roll back",
            "Close connection",
        )
    },
    **{key: {} for key in ("Send a test", "Verify the chain", "Record for 10 minutes", "Move", "Change")},
    **{key: {} for key in ("Send now", "Redrive", "Rotate the secret", "Revoke", "Reload")},
    **{key: {} for key in ("Set tags", "Set permissions", "Set topic permissions", "Move 1 message")},
    **{
        key: {"Name": "mine-new"}
        for key in ("Add a queue", "Add an exchange", "Add a stream", "Add a subscription")
    },
    "Publish a message": {"Payload": "x", "Routing key": "q"},
    "Bind": {"Its name": "mine-q", "Routing key": "k"},
    "Add a policy": {"Name": "new", "Pattern of names": "^x$", "Rules, as JSON": '{"max-length": 3}'},
    "Add a virtual host": {"Name": "new"},
    "Add a user": {"Name": "new", "Password": "p"},
    "Set password": {"Password": "p"},
    "Limit a virtual host": {"At most": "100000"},
    "Limit a user": {"User": "other", "At most": "100000"},
    "Make a token": {"Name": "new"},
    "Replay": {"From": "-1h"},
    "Replay into a new queue": {"Name of the queue": "mine-new"},
}
"""Buttons that open a dialog, and what its fields need."""
PRESSED = {
    *("Look at messages", "Try the route", "Preview", "Search", "Continue", "Count", "Follow", "Show", "Ask"),
    *("First", "Next", "Previous", "Download as CSV", "Select all"),
    *("Connect all", "Publish", "Consume", "Measure rates", "Show what would change", "Hide", "Copy"),
}
"""Buttons that do something at once."""
KINDS = {
    **{kind: kind for kind in ("vhosts", "queues", "exchanges", "policies", "users", "permissions")},
    **{"operator-policies": "parameters", "vhost-limits": "parameters", "user-limits": "users"},
    "topic-permissions": "topic_permissions",
}
"""Where the definitions have the things of a path."""
PARTS = 3
"""The places are looked at in so many tests."""
PLACES = (
    *PAGES,
    *(f"queues/{V}/{name}" for name in ("q", "d", "s", "mine-q", "exclusive")),
    *(f"queues/{V}/{name}" for name in ("mqtt-subscription-deskqos1", "subscription-s%2Fsub")),
    *(f"exchanges/{V}/{name}" for name in ("x", "mine-x", "amq.default", "amq.topic")),
    *(f"streams/{V}/s", f"dead-letters/{V}/d", f"webhooks/{V}/w", "users/other", "vhosts?name=spare"),
    *("tokens?user=other", "topics?under=a"),
    *(f"live?of={of}" for of in ("exchange", "default", "topic", "webhooks", "log", "audit")),
    *("live?of=findings", "live?of=slow"),
    *("live?of=queue&name=q", "live?of=stream&name=s"),
    "search?run=1&from=first",
    *("connections/@AMQP 0-9-1", "connections/@MQTT 3-1-1", "channels/@AMQP 0-9-1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One of its own: whatever the controls delete is nobody else's."""
    with Gateway(tmp_path_factory.mktemp("controls"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def things(gateway: Gateway) -> Iterator[Things]:
    with closing(Things(gateway)) as things:
        yield things


_DONE = """() => {
  const dialog = document.querySelector("dialog[open]");
  return !dialog || dialog.querySelector("[role=alert]");
}"""
"""It closed, or says why not."""
_COUNT_REQUESTS = """
window.waited = 0;
const plain = window.fetch;
window.fetch = async (...words) => {
  window.waited++;
  try {
    const answer = await plain(...words);
    await answer.clone().arrayBuffer();
    return answer;
  } finally {
    window.waited--;
  }
};
"""
"""Counts the requests whose answers are not there yet."""
_SETTLED = """() => new Promise((done) => {
  let calm = 0;
  const look = () => {
    calm = window.waited ? 0 : calm + 1;
    if (calm < 4) requestAnimationFrame(look);
    else done();
  };
  look();
})"""
"""The answers are there, and four times the page was drawn without asking for more."""


class Things:
    """Something of everything, that is made again when it is gone."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.api = Api(gateway)
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{gateway.ports['management']}/v1/vhosts/{V}/",
            auth=("guest", "guest"),
            timeout=120,
        )
        self._amqp: pika.BlockingConnection | None = None
        self._made: dict[str, object] = {}
        assert self.api.status("PUT", f"vhosts/{V}") == 201
        assert self.api.status("PUT", f"permissions/{V}/guest", ALL) in (201, 204)
        self._mqtt = paho.Client(CallbackAPIVersion.VERSION2, "desk", clean_session=False)
        self._mqtt.username_pw_set(f"{V}:guest", "guest")
        self._mqtt.on_connect = self._subscribe
        self._mqtt.connect("127.0.0.1", gateway.mqtt_port)
        self._mqtt.loop_start()
        self.restore()

    def _subscribe(self, *_: object) -> None:
        self._mqtt.subscribe("desk/#", 1)

    def close(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()
        self._hang_up()
        self._http.close()
        self.api.close()

    def restore(self) -> None:
        """Make what is missing."""
        seen = self._seen()
        if changed := {kind for kind, found in seen.items() if found != self._made.get(kind)}:
            self._define(changed)
            self._made = self._seen()
        self._fill()

    def _seen(self) -> dict[str, object]:
        """The definitions by their kind, in few requests."""
        names = [one["name"] for one in self.api.get(f"exchanges/{V}")]
        known: dict[str, object] = self.api.get("definitions")
        return {**known, "bindings": self.api.get(f"bindings/{V}"), "exchanges": names}

    def _define(self, changed: set[str]) -> None:
        """Make what is missing of these kinds."""
        api = self.api
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"}
        for path, body in (
            ("vhosts/spare", None),
            (f"queues/{V}/d", {"durable": True}),
            (f"queues/{V}/q", {"durable": True, "arguments": dead}),
            (f"queues/{V}/mine-q", {"durable": True}),
            (f"queues/{V}/hooked", {"durable": True}),
            (f"queues/{V}/s", STREAM),
            (f"exchanges/{V}/x", {"type": "topic"}),
            (f"exchanges/{V}/mine-x", {"type": "direct"}),
            (f"policies/{V}/p", RULE),
            (f"operator-policies/{V}/o", RULE),
            ("users/other", {"password": "p", "tags": ""}),
            (f"permissions/{V}/other", ALL),
            (f"vhost-limits/{V}/max-queues", {"value": 100_000}),
            ("user-limits/other/max-channels", {"value": 100_000}),
            (f"topic-permissions/{V}/other", {"exchange": "amq.topic", "write": ".*", "read": ".*"}),
        ):
            if KINDS[path.partition("/")[0]] in changed:
                assert api.status("PUT", path, body) in (201, 204), path
        for gone in (f"queues/{V}/mine-new", f"exchanges/{V}/mine-new", "vhosts/new", "users/new"):
            if gone.partition("/")[0] in changed:
                assert api.status("DELETE", gone) in (204, 404), gone
        for source in ("x", "mine-x", "amq.topic") if "bindings" in changed else ():
            assert api.status("POST", f"bindings/{V}/e/{source}/q/q", {"routing_key": "q"}) == 201

    def _fill(self) -> None:
        """Make what is no definition."""
        api = self.api
        rejected = {"count": 1, "ackmode": "reject_requeue_false", "encoding": "auto"}
        if not api.get(f"queues/{V}/d")["messages"]:
            self._post("queues/q/messages", {"messages": [{"value": "dead"}]})
            assert len(api.send("POST", f"queues/{V}/q/get", rejected).json()) == 1
        if not api.get(f"queues/{V}/q")["messages"]:
            self._post("queues/q/messages", {"messages": [{"value": "there"}]})
        self._put("streams/s/subscriptions/sub", {})
        hook = {"source": {"queue": "hooked"}, "url": "https://receiver.invalid/here"}
        if self._http.get("webhooks/w").status_code == 404:
            self._put("webhooks/w", hook)
        tokens = f"http://127.0.0.1:{self.gateway.ports['management']}/v1/tokens"
        if not self._http.get(tokens, params={"user": "other"}).json()["tokens"]:
            self._post(tokens, {"user": "other", "name": "t"})
        if not self._http.get("delayed").json()["messages"]:
            later = {"messages": [{"value": "x", "delay_ms": 86_400_000}]}
            self._post("exchanges/amq.direct/messages?routing_key=k", later)
        if not api.get(f"retained/{V}"):
            self._post("mqtt/messages?topic=a&retain=true", {"messages": [{"value": "x"}]})
        if not api.get(f"half/{V}"):
            self._post("half", {"queue": "q", "message": {"value": "x"}, "name": "h"})
        if not api.get(f"transactions/{V}"):
            self._post("transactions", {"timeout_ms": 900_000})
        assert api.status("PUT", "recording", {"kinds": [], "for_s": 0}) == 200
        until(lambda: api.status("GET", f"queues/{V}/mqtt-subscription-deskqos1") == 200)
        if not any(one["protocol"] == "AMQP 0-9-1" for one in api.get("connections")):
            self._connect()

    def _hang_up(self) -> None:
        """Close our end of a connection that the gateway has closed."""
        if self._amqp is not None:
            with suppress(pika.exceptions.AMQPError):
                self._amqp.process_data_events(0)
            with suppress(pika.exceptions.AMQPError):
                self._amqp.close()

    def _connect(self) -> None:
        self._hang_up()
        login = pika.PlainCredentials("guest", "guest")
        amqp = self.gateway.amqp_port
        self._amqp = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", amqp, V, login, heartbeat=600)
        )
        channel = self._amqp.channel()
        channel.queue_declare("exclusive", exclusive=True)
        channel.basic_consume("exclusive", lambda *_: None)

    def _post(self, target: str, body: object) -> None:
        answer = self._http.post(target, json=body)
        assert answer.status_code < 300, (target, answer.text)

    def _put(self, target: str, body: object) -> None:
        answer = self._http.put(target, json=body)
        assert answer.status_code < 300, (target, answer.text)

    def named(self, place: str) -> str:
        """A place with the name that its connection has now; a client that was closed comes back."""
        kind, _, protocol = place.partition("/@")
        if not protocol:
            return place
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [one["name"] for one in self.api.get("connections") if one["protocol"] == protocol]
            return bool(found)

        until(is_there)
        return f"{kind}/{quote(found[0] + ' (1)' * (kind == 'channels'), safe='')}"


class Controls:
    """The buttons of one user."""

    def __init__(self, page: Page, things: Things, vhost: str) -> None:
        """`vhost`: chosen on each page; "": none, as the user may enter none."""
        self._page = page
        self._vhost = vhost
        self._things = things
        self._refused: list[str] = []
        self.pressed: set[str] = set()
        self.wrong: list[tuple[str, str, list[str]]] = []
        """Place, button and what was refused."""
        page.on("response", self._answered)
        page.add_init_script(_COUNT_REQUESTS)

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self._refused.append(f"{answer.request.method} {answer.url}: {answer.status}")

    def look_at(self, place: str) -> None:
        """Open a place, and press each of its buttons once."""
        names = shown = self._open(place)
        changed = False
        for name in names:
            if changed:
                self._things.restore()
                shown = self._open(place)
            if name in shown:
                self._press(place, name)
            changed = name in FIELDS
        if changed:
            self._things.restore()

    def _open(self, place: str) -> list[str]:
        page, place = self._page, self._things.named(place)
        # A page of its own each time, by a link: to load the console anew takes five times as long.
        page.evaluate("location.hash = '#/nowhere'")
        page.evaluate(_SETTLED)
        self._refused.clear()  # of what is gone, which another page asked for
        alerts = go(page, f"#/{place}{'&' if '?' in place else '?'}vhost={self._vhost}", frames=4)
        self._note_refusals(place, "", alerts)
        if place.startswith("search?run"):  # until then it can be stopped
            expect(page.get_by_role("button", name="Stop", exact=True)).to_have_count(0)
        buttons = page.locator("main").locator("button:not(.plain):not([disabled])")
        return list(dict.fromkeys(name.strip() for name in buttons.all_inner_texts()))

    def _press(self, place: str, name: str) -> None:
        page = self._page
        main = page.locator("main")
        assert name in FIELDS or name in PRESSED, f"{place}: is the button {name} new?"
        main.get_by_role("button", name=name, exact=True).first.click()
        if name in FIELDS:
            dialog = page.get_by_role("dialog")
            self._fill(dialog, FIELDS[name])
            dialog.get_by_role("button", name=name, exact=True).click()
            page.wait_for_function(_DONE)
            said = dialog.get_by_role("alert").all_inner_texts()
            assert said == [], (place, name)
        elif not place.startswith("live"):  # what follows has no end
            page.evaluate(_SETTLED)
        self.pressed.add(name)
        # Of what a button deleted nobody is told anything else.
        self._nothing_is_refused(place, name, gone=name in ("Delete", "Clear", "Close connection"))

    def _fill(self, dialog: Locator, values: dict[str, str]) -> None:
        expect(dialog).to_be_visible()
        for label, value in values.items():
            # Behind the label may stand a help; a queue's own dialog has no routing key.
            field = dialog.get_by_label(re.compile(f"^{re.escape(label)}"))
            if label != "Routing key" or field.count():
                field.first.fill(value)
        confirm = dialog.locator("input[name=confirm]")
        if confirm.count():
            asked = dialog.get_by_text(re.compile("^Type .* to confirm$")).inner_text()
            confirm.fill(asked.removeprefix("Type ").removesuffix(" to confirm"))

    def _nothing_is_refused(self, place: str, name: str, *, gone: bool = False) -> None:
        alerts = [] if gone else self._page.locator("main").get_by_role("alert").all_inner_texts()
        self._note_refusals(place, name, alerts, gone=gone)

    def _note_refusals(self, place: str, name: str, alerts: list[str], *, gone: bool = False) -> None:
        self._note(place, name, [one for one in self._refused if not (gone and one.endswith(": 404"))])
        self._refused.clear()
        self._note(place, name, alerts)

    def _note(self, place: str, name: str, refused: list[str]) -> None:
        if refused:
            self.wrong.append((place, name, refused))


def _leads_to(place: str, rights: dict[str, str] | None) -> bool:
    """Whether a link leads a user there who does not see everything."""
    if "/@" in place:
        return False  # the clients are somebody else's
    if f"/{V}/" not in place:
        return True
    return rights is not None and not (rights is NONE and place.startswith("streams/"))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("tags", "rights"),
    [
        ("administrator", ALL),
        ("administrator", None),
        ("monitoring", MINE),
        ("policymaker", ALL),
        ("management", NONE),
        ("management", None),
        ("auditor", None),
    ],
)
def test_each_control_does_what_it_says(
    things: Things, browser: Browser, unique: str, tags: str, rights: dict[str, str] | None, part: int
) -> None:
    things.restore()
    assert things.api.status("PUT", f"users/{unique}", {"password": "p", "tags": tags}) == 201
    if rights is not None:
        assert things.api.status("PUT", f"permissions/{V}/{unique}", rights) == 201
    base = f"http://127.0.0.1:{things.gateway.ports['management']}"
    with watched_page(browser, base, refusals=True) as page:
        sign_in(page, unique, "p")
        navigation = page.get_by_role("navigation", name="Pages")
        shown = {
            (link.get_attribute("href") or "").split("/")[1].partition("?")[0]
            for link in navigation.get_by_role("link").all()
        }
        sees_all = not {"administrator", "monitoring"}.isdisjoint(tags.split(","))
        controls = Controls(page, things, V if sees_all or rights is not None else "")
        for place in PLACES[part::PARTS]:
            if re.split("[/?]", place)[0] in shown and (sees_all or _leads_to(place, rights)):
                controls.look_at(place)
    assert controls.wrong == []
    assert len(controls.pressed) > 3 or rights not in (ALL, MINE)
    assert things.api.status("DELETE", f"users/{unique}") == 204


def test_a_user_without_a_tag_is_told_so(things: Things, browser: Browser, unique: str) -> None:
    assert things.api.status("PUT", f"users/{unique}", {"password": "p", "tags": ""}) == 201
    base = f"http://127.0.0.1:{things.gateway.ports['management']}"
    with watched_page(browser, base, refusals=True) as page:
        page.goto("/")
        page.get_by_label("User name").fill(unique)
        page.get_by_label("Password").fill("p")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("Not management user")
        expect(page.get_by_role("navigation", name="Pages")).to_have_count(0)
    assert things.api.status("DELETE", f"users/{unique}") == 204
