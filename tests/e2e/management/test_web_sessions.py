"""POST and DELETE /api/login: a page logs in by a cookie that no script sees, and logs out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ's page has other sessions")

GUEST = {"username": "guest", "password": "guest"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("sessions")
    pair = Authority(folder).server()
    settings = {
        **SETTINGS,
        "server.workers": "2",
        "management.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    with Gateway(folder / "data", settings=settings) as running:
        yield running


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def browser(gateway: Gateway, listener: str = "management", **options: Any) -> httpx.Client:
    scheme = "https" if listener.endswith("tls") else "http"
    port = gateway.ports[listener]
    base = f"{scheme}://127.0.0.1:{port}"
    return httpx.Client(base_url=base, headers={"origin": base}, timeout=LIMIT_S, verify=False, **options)


@pytest.mark.parametrize("http2", [False, True])
def test_a_page_logs_in_and_out(gateway: Gateway, http2: bool) -> None:
    with browser(gateway, http1=not http2, http2=http2) as page:
        assert page.get("/api/whoami").status_code == 401
        answer = page.post("/api/login", json=GUEST)
        assert answer.status_code == 200
        told = {"name": "guest", "tags": ["administrator"], "is_internal_user": True}
        assert answer.json() == told
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"penstock-{gateway.ports['management']}=")
        assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")  # and no time of its own
        assert answer.headers["cache-control"] == "no-store"
        # On any connection, which either worker may have accepted; also what the other worker answers.
        for _ in range(8):
            with browser(gateway, cookies=page.cookies, http1=not http2, http2=http2) as tab:
                assert "console/app.js" in tab.get("/").text
                assert tab.get("/console/app.js").status_code == 200
                assert tab.get("/api/whoami").json()["name"] == "guest"
                assert tab.get("/api/queues/%2F").status_code == 200
        before = dict(page.cookies)
        out = page.delete("/api/login")
        assert out.status_code == 204 and "Max-Age=0" in out.headers["set-cookie"]
        for _ in range(8):
            with browser(gateway, cookies=before, http1=not http2, http2=http2) as thief:
                answer = thief.get("/api/queues/%2F")
                assert (answer.status_code, answer.json()["reason"]) == (
                    401, "the session has ended; log in again",
                )  # fmt: skip
                assert answer.headers["www-authenticate"].startswith("Bearer")
        assert page.delete("/api/login").status_code == 204


def test_a_login_takes_the_place_of_the_one_before(gateway: Gateway) -> None:
    with browser(gateway) as page:
        page.post("/api/login", json=GUEST)
        before = dict(page.cookies)
        page.post("/api/login", json=GUEST)
        assert dict(page.cookies) != before
        with browser(gateway, cookies=before) as other:
            assert other.get("/api/whoami").status_code == 401


def test_under_tls_the_cookie_is_for_tls_only(gateway: Gateway) -> None:
    with browser(gateway, "management_tls") as page:
        answer = page.post("/api/login", json=GUEST)
        cookie, port = answer.headers["set-cookie"], gateway.ports["management_tls"]
        assert cookie.startswith(f"__Host-penstock-{port}=") and cookie.endswith("; Secure")
        value = cookie.partition("=")[2].partition(";")[0]
        assert (
            page.get("/api/whoami", headers={"cookie": f"__Host-penstock-{port}={value}"}).status_code == 200
        )
        # Another server that answers for this host without TLS can set such a cookie.
        assert page.get("/api/whoami", headers={"cookie": f"penstock-{port}={value}"}).status_code == 401


def test_behind_a_proxy_that_ends_tls_the_cookie_is_for_tls_only(gateway: Gateway) -> None:
    with browser(gateway) as page:
        headers = {
            "host": "broker.example",
            "origin": "https://broker.example",
            "sec-fetch-site": "same-origin",
        }
        # Such a name makes nobody local, so guest may not.
        assert page.post("/api/login", json=GUEST, headers=headers).status_code == 401
        headers = {"host": "localhost", "origin": "https://localhost"}
        cookie = page.post("/api/login", json=GUEST, headers=headers).headers["set-cookie"]
        assert cookie.startswith("penstock-=") and cookie.endswith("; Secure")
        value = cookie.partition(";")[0]
        assert page.get("/api/whoami", headers={**headers, "cookie": value}).status_code == 200


def test_a_header_goes_before_a_cookie(gateway: Gateway, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    with browser(gateway) as page:
        page.post("/api/login", json=GUEST)
        assert page.get("/api/whoami", auth=(unique, "p")).json()["name"] == unique


@pytest.mark.parametrize(
    "change", [{"password": "q", "tags": "monitoring"}, {"password": "p", "tags": "management"}, None]
)
def test_a_session_ends_with_what_it_was_begun_by(
    gateway: Gateway, api: Api, unique: str, change: dict[str, str] | None
) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "monitoring"}) == 201
    with browser(gateway) as page:
        assert page.post("/api/login", json={"username": unique, "password": "p"}).status_code == 200
        assert page.get("/api/queues").status_code == 200
        if change is None:
            assert api.status("DELETE", f"users/{unique}") == 204
        else:
            assert api.status("PUT", f"users/{unique}", change) == 204
        assert page.get("/api/queues").status_code == 401


def test_forms_and_bodies_that_are_none(gateway: Gateway, api: Api, unique: str) -> None:
    with browser(gateway) as page:
        assert page.post("/api/login", data=GUEST).status_code == 200  # RabbitMQ's page sends forms
        assert page.post("/api/login", data={**GUEST, "password": "no"}).status_code == 401
        for body in (b"", b"[]", b'{"username": "guest"}', b'{"username": 1, "password": "x"}'):
            answer = page.post("/api/login", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 400, body
        form = {"content-type": "application/x-www-form-urlencoded"}
        for body in (b"", b"username=guest", b"username=%FF&password=x", b"&".join([b"a=b"] * 11)):
            assert page.post("/api/login", content=body, headers=form).status_code == 400, body
        assert page.post("/api/login", content=bytes(16385), headers=form).status_code == 413
        assert (
            page.post("/api/login", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
        )
        assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": ""}) == 201
        answer = page.post("/api/login", json={"username": unique, "password": "p"})
        assert (answer.status_code, answer.json()["reason"]) == (401, "Not management user")
        assert "set-cookie" not in answer.headers


def test_another_site_neither_logs_in_nor_out(gateway: Gateway) -> None:
    with browser(gateway) as page:
        page.post("/api/login", json=GUEST)
        evil = {"origin": "https://evil.example", "content-type": "application/x-www-form-urlencoded"}
        answer = page.post("/api/login", content=b"username=guest&password=guest", headers=evil)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers
        assert page.delete("/api/login", headers=evil).status_code == 403
        assert page.get("/api/whoami").status_code == 200


def test_wrong_passwords_are_counted_noted_and_slowed_down(tmp_path: Path) -> None:
    settings = {**SETTINGS, "auth.loopback_users": "[]"}
    with (
        Gateway(tmp_path, settings=settings) as gateway,
        closing(Api(gateway)) as api,
        browser(gateway) as page,
    ):
        name = "nobody"
        attempts = f"auth/attempts/{api.get('overview')['node']}"
        before = {one["protocol"]: one["auth_attempts_failed"] for one in api.get(attempts)}["http"]
        for _ in range(10):
            assert page.post("/api/login", json={"username": name, "password": "x"}).status_code == 401
        after = {one["protocol"]: one["auth_attempts_failed"] for one in api.get(attempts)}["http"]
        assert after == before + 10
        # A session that has ended is nobody's fault.
        port = gateway.ports["management"]
        assert page.get("/api/whoami", headers={"cookie": f"penstock-{port}=x"}).status_code == 401
        assert {one["protocol"]: one["auth_attempts_failed"] for one in api.get(attempts)}["http"] == after
        noted = [one for one in api.get("audit") if one["result"] == "refused" and one["user"] == name]
        assert noted
        begun = time.monotonic()
        assert page.post("/api/login", json={"username": name, "password": "x"}).status_code == 401
        assert time.monotonic() - begun > 1  # it waited for its turn, as a login by Basic does


def test_a_session_holds_after_a_restart(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings=SETTINGS) as gateway, browser(gateway) as page:
        page.post("/api/login", json=GUEST)
        (value,) = page.cookies.values()
    with Gateway(tmp_path, settings=SETTINGS) as gateway, browser(gateway) as page:
        port = gateway.ports["management"]
        assert page.get("/api/whoami", headers={"cookie": f"penstock-{port}={value}"}).status_code == 200
