"""Pages of other origins change, follow and read nothing, on any listener with HTTP or WebSocket."""

from __future__ import annotations

import json
import queue
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as mqtt
import pytest
from playwright.sync_api import expect
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.support.brokers import Gateway
from tests.support.browser import chromium, watched_page
from tests.support.chromium import Chromium
from tests.support.data_plane import SERVED
from tests.support.http_routes import http_routes
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("these are rules of penstock's own listeners")

LINK: Mapping[str, str] = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}
"""Of somebody who followed a link."""
FOREIGN: tuple[Mapping[str, str], ...] = (
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://["},
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    LINK,
)
MAKES_ADMIN = json.dumps(
    {
        "users": [{"name": "evil", "password": "evil", "tags": "administrator"}],
        "permissions": [],
        "vhosts": [],
    }
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {**SERVED, "mqtt.ws_listen": "127.0.0.1:0", "server.host_names": '["broker.example"]'}
    with Gateway(tmp_path_factory.mktemp("cross-site"), settings=settings) as running:
        yield running


def client(gateway: Gateway, listener: str, *, http2: bool = False) -> httpx.Client:
    base = f"http://127.0.0.1:{gateway.ports[listener]}"
    return httpx.Client(base_url=base, auth=("guest", "guest"), http1=not http2, http2=http2, timeout=30)


def definitions(gateway: Gateway) -> Any:
    with client(gateway, "management") as http:
        found = http.get("/api/definitions").json()
    return {key: value for key, value in found.items() if not key.endswith("version")}


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("listener", ["management", "http"])
def test_a_foreign_page_is_refused_on_every_route(gateway: Gateway, listener: str, http2: bool) -> None:
    routes = [(method, path.replace("{}", "%2F")) for method, path in http_routes()]
    assert len(routes) > 120
    with ExitStack() as stack:
        for at, (method, path) in enumerate(routes):
            if at % 100 == 0:  # a connection may send 64 KiB before a login
                http = stack.enter_context(client(gateway, listener, http2=http2))
            # Links to pages may be followed; an API is no page.
            kinds = FOREIGN if path.startswith(("/api/", "/v1/")) else FOREIGN[:-1]
            headers = kinds[at % len(kinds)]
            body = MAKES_ADMIN.encode() if method in ("POST", "PUT") else None
            answer = http.request(
                method, path, content=body, headers={**headers, "content-type": "text/plain"}
            )
            assert answer.status_code == 403, (method, path, headers, answer.text)
            assert "cross_site" in answer.text or method == "HEAD"


def test_all_kinds_of_foreign_pages_are_refused(gateway: Gateway) -> None:
    before = definitions(gateway)
    with client(gateway, "management") as http:
        for headers in FOREIGN:
            answer = http.post("/api/definitions", content=MAKES_ADMIN, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (403, "cross_site"), headers
            assert "from a program" in answer.json()["reason"]
    assert definitions(gateway) == before


def test_metrics_are_for_no_foreign_page(gateway: Gateway) -> None:
    with client(gateway, "metrics") as http:
        assert http.get("/metrics").status_code == 200
        assert http.get("/metrics", headers={"origin": "https://evil.example"}).status_code == 403


def test_a_link_of_another_site_may_lead_to_a_page(gateway: Gateway) -> None:
    with client(gateway, "http") as http:
        assert http.get("/problems/cross_site", headers=LINK).status_code == 200
        assert http.post("/problems/cross_site", headers=LINK).status_code == 403
        framed = {**LINK, "sec-fetch-dest": "iframe"}
        assert http.get("/problems/cross_site", headers=framed).status_code == 403


def test_the_gateways_own_page_sends_json(gateway: Gateway) -> None:
    with client(gateway, "management") as http:
        for own in ({"origin": f"http://127.0.0.1:{http.base_url.port}"}, {"sec-fetch-site": "same-origin"}):
            put = "/api/vhosts/own"
            for kind in (
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "",
            ):
                headers = {**own, **({"content-type": kind} if kind else {})}
                answer = http.put(put, content=b"{}", headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type"), kind
            headers = {**own, "content-type": "application/json"}
            assert http.put(put, content=b"{}", headers=headers).status_code in (201, 204)
            assert http.delete(put, headers=own).status_code == 204
            # RabbitMQ's page of 3.10 names no type where it publishes and gets.
            headers = {**own, "content-type": "text/plain;charset=UTF-8"}
            said = {"properties": {}, "routing_key": "k", "payload": "x", "payload_encoding": "string"}
            answer = http.post(
                "/api/exchanges/%2F/amq.topic/publish", content=json.dumps(said), headers=headers
            )
            assert (answer.status_code, answer.json()) == (200, {"routed": False})
        # Programs send what they like: curl's default type is a form's.
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert http.put("/api/vhosts/own", content=b"{}", headers=form).status_code == 201
        assert http.delete("/api/vhosts/own").status_code == 204


def test_a_page_gets_no_password_dialog(gateway: Gateway) -> None:
    for listener, path in (("management", "/api/whoami"), ("http", "/v1/vhosts/%2F/queues/q/tail")):
        with httpx.Client(base_url=f"http://127.0.0.1:{gateway.ports[listener]}", timeout=LIMIT_S) as http:
            for headers, scheme in (({}, "Basic"), ({"sec-fetch-site": "same-origin"}, "Bearer")):
                answer = http.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith(scheme), path


@pytest.mark.parametrize("http2", [False, True])
def test_a_name_of_somebody_else_does_not_make_a_client_local(gateway: Gateway, http2: bool) -> None:
    port = gateway.ports["management"]
    hosts = {
        "127.0.0.1": 200,
        "localhost": 200,
        f"LOCALHOST:{port}": 200,
        f"[::1]:{port}": 200,
        "192.0.2.1": 200,  # an address is nobody's to point elsewhere
        "broker.example": 200,
        "evil.example": 401,
        f"evil.example:{port}": 401,
        "localhost.evil.example": 401,
        "127.0.0.1.evil.example": 401,
        "[": 401,
    }
    with client(gateway, "management", http2=http2) as http:
        for host, status in hosts.items():
            if http2 and host == "[":
                continue  # not a header that the client sends
            # On one connection: a login that was right says nothing about the next request's name.
            assert http.get("/api/whoami", headers={"host": host}).status_code == status, host
    with client(gateway, "metrics") as http:
        with httpx.Client(base_url=http.base_url, timeout=LIMIT_S) as nobody:
            assert nobody.get("/metrics").status_code == 200
            assert nobody.get("/metrics", headers={"host": "evil.example"}).status_code == 401


def test_web_sockets_of_foreign_pages_are_refused(gateway: Gateway) -> None:
    login = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
    for listener in ("http", "management"):
        host = f"127.0.0.1:{gateway.ports[listener]}"
        url = f"ws://{host}/v1/vhosts/%2F/ws"
        connect(url, additional_headers=login, origin=Origin(f"http://{host}")).close()
        for headers in FOREIGN:
            with pytest.raises(InvalidStatus) as refused:
                connect(url, additional_headers={**login, **headers})
            assert refused.value.response.status_code == 403
        # A name of somebody else that points to this machine, and a page that was loaded from there.
        rebound = url.replace(host, "evil.example")
        below = socket.create_connection(("127.0.0.1", gateway.ports[listener]))
        page = Origin("http://evil.example")
        with below, pytest.raises(InvalidStatus) as refused:
            connect(rebound, sock=below, additional_headers=login, origin=page)
        assert refused.value.response.status_code == 401


def refuses(gateway: Gateway, user: str | None, headers: dict[str, str]) -> bool:
    """Whether an MQTT client over WebSocket with these headers is refused."""
    codes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    one = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, transport="websockets")
    if user is not None:
        one.username_pw_set(user, user)
    one.on_connect = lambda *args: codes.put(args[3].is_failure)
    one.ws_set_options("/mqtt", headers)
    one.connect("127.0.0.1", gateway.ports["ws"])
    one.loop_start()
    try:
        return codes.get(timeout=30)
    finally:
        one.disconnect()
        one.loop_stop()


@pytest.mark.parametrize("user", [None, "guest"])
def test_an_mqtt_client_in_a_foreign_page_is_not_local(gateway: Gateway, user: str | None) -> None:
    own = f"127.0.0.1:{gateway.ports['ws']}"
    assert not refuses(gateway, user, {"Host": own})
    assert not refuses(gateway, user, {"Host": own, "Origin": f"http://{own}"})
    assert refuses(gateway, user, {"Host": own, "Origin": "http://localhost:3000"})
    assert refuses(gateway, user, {"Host": "evil.example"})


FORM = """<!doctype html><body><form method="post" enctype="TYPE" action="TARGET"><input></form><script>
const body = BODY, [form] = document.forms, [field] = form;
field.name = body.slice(0, -1) + ',"x":"'; field.value = '"}'; form.submit();
</script>"""
"""A form that a page sends in its reader's name, as a document of its own: its body is JSON in text/plain."""

SCRIPT = """<!doctype html><title>nothing was opened</title><body><script>
const target = "TARGET", routes = ROUTES, body = BODY, wait = [];
for (const [method, path] of routes) {
  const url = target + path, headers = { authorization: "Basic Z3Vlc3Q6Z3Vlc3Q=" };
  const options = { method, mode: "no-cors", credentials: "include" };
  if (method === "POST") options.body = body;
  wait.push(fetch(url, options).catch(() => 0));
  wait.push(fetch(url, { ...options, mode: "cors", headers }).catch(() => 0));
  const image = new Image(); image.src = url;
}
const opened = done => () => { document.title = "opened"; done() };
const socket = new WebSocket(target.replace("http", "ws") + "/v1/vhosts/%2F/ws");
wait.push(new Promise(done => { socket.onopen = opened(done); socket.onerror = socket.onclose = done }));
const tail = target + "/v1/vhosts/%2F/exchanges/amq.topic/tail";
const events = new EventSource(tail, { withCredentials: true });
wait.push(new Promise(done => { events.onopen = opened(done); events.onerror = done }));
Promise.all(wait).then(() => location = "/done?" + document.title);
</script>"""


@contextmanager
def pages(shown: dict[str, str]) -> Iterator[str]:
    """A server of pages by path; the URL of it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(shown.get(self.path, "").encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def attacks(base: str, *targets: str) -> dict[str, str]:
    """Pages by path: one with a script that tries every route that changes something, and forms."""
    routes = [(m, p.replace("{}", "attacked")) for m, p in http_routes() if m != "GET"]
    body = json.dumps(MAKES_ADMIN)
    script = SCRIPT.replace("TARGET", base).replace("ROUTES", json.dumps(routes)).replace("BODY", body)
    shown = {"/script": script}
    for target in targets:
        for path in ("/api/definitions", "/v1/vhosts/%2F/queues/attacked/messages"):
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                form = FORM.replace("TARGET", target + path).replace("TYPE", kind).replace("BODY", body)
                shown[f"/form/{len(shown)}"] = form
    return shown


@contextmanager
def unharmed(gateway: Gateway) -> Iterator[None]:
    """The requests made within change nothing."""
    with client(gateway, "management") as http:
        http.put("/api/queues/%2F/attacked", json={"durable": True}).raise_for_status()
    before = definitions(gateway)
    yield
    assert definitions(gateway) == before
    with client(gateway, "management") as http:
        assert http.get("/api/queues/%2F/attacked").json().get("messages", 0) == 0


def test_chromium_on_another_origin_changes_nothing(gateway: Gateway, tmp_path: Path) -> None:
    """A page of another port tries every route that changes something; Chromium remembers a login."""
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with_login = base.replace("://", "://guest:guest@")
    shown = attacks(base, base, with_login)
    with unharmed(gateway), pages(shown) as url, Chromium(tmp_path) as browser:
        browser.wait_at(browser.open(f"{with_login}/api/whoami"), with_login)
        for page in shown:
            tab = browser.open(url + page)
            if page == "/script":
                browser.wait_at(tab, f"{url}/done?")
                browser.wait_at(tab, f"{url}/done?nothing")
            else:
                browser.wait_at(tab, base, with_login)


def test_a_page_beside_a_console_changes_nothing(gateway: Gateway) -> None:
    """The same with the session of a console. Ports are no sites of their own: its cookie is sent along."""
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    shown = attacks(base, base)
    with unharmed(gateway), pages(shown) as url, chromium() as browser:
        with watched_page(browser, base, refusals=True) as console:
            console.goto("/")
            console.get_by_label("User name").fill("guest")
            console.get_by_label("Password").fill("guest")
            console.keyboard.press("Enter")
            navigation = console.get_by_role("navigation", name="Pages")
            expect(navigation).to_be_visible()
            for page in shown:
                beside = console.context.new_page()
                beside.goto(url + page)
                beside.wait_for_url(f"{url}/done?nothing*" if page == "/script" else f"{base}/**")
                beside.close()
            console.reload()
            expect(navigation).to_be_visible()  # it is not even logged out
