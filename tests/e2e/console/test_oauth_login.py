"""Signing in at an issuer of tokens: by its page and back, and each way in which that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.issuer import CLIENT, Issuer
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS
from tests.support.tokens import AUDIENCE, ISSUER

pytestmark = pytest.mark.penstock_only("the console is ours")

RIGHTS = "broker.tag:management broker.read:*/* broker.write:*/amq.topic/a.*"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with closing(Issuer(tmp_path_factory.mktemp("issuer"))) as issuer:
        issuer.tokens["ann"] = {"scope": RIGHTS}
        issuer.tokens["bob"] = {"scope": "broker.read:*/*"}
        issuer.tokens["eve"] = {"scope": RIGHTS, "key": "two"}
        yield issuer


def settings_of(issuer: Issuer) -> dict[str, str]:
    return {
        **SETTINGS,
        "oauth.issuer": ISSUER,
        "oauth.resource_server_id": AUDIENCE,
        "oauth.jwks_url": issuer.url,
        "oauth.ca_file": str(issuer.authority.file),
        "oauth.client_id": CLIENT,
        "oauth.authorization_url": f"{issuer.base}/authorize",
        "oauth.token_url": f"{issuer.base}/token",
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[Gateway]:
    settings = settings_of(issuer)
    with Gateway(tmp_path_factory.mktemp("oauth"), settings=settings) as running:
        yield running


@pytest.fixture
def page(gateway: Gateway, browser: Browser) -> Iterator[Page]:
    with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
        yield page


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.ports['management']}", timeout=LIMIT_S) as client:
        yield client


def log_in(page: Page, user: str, button: str = "Log in") -> None:
    page.goto("/")
    page.get_by_role("link", name=f"Sign in with {ISSUER}").click()
    page.get_by_label("Name").fill(user)
    page.get_by_role("button", name=button).click()


def begun(client: httpx.Client) -> dict[str, str]:
    """A login that a program begins: what the issuer is asked."""
    target = client.get("/sign-in/oauth").headers["location"]
    return {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}


def test_a_user_signs_in_at_the_issuer_and_has_the_rights_of_the_token(page: Page, gateway: Gateway) -> None:
    page.goto("/")
    expect(page.get_by_role("link", name=f"Sign in with {ISSUER}")).to_be_visible()
    assert obstacles(page) == []
    log_in(page, "ann")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    expect(page.locator(".who")).to_have_text("ann")
    assert "code" not in page.url
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
    may = "/api/may?user=ann&vhost=%2F&operation={}&name=amq.topic&routing_key={}"
    for operation, key, allowed in (("write", "a.b", True), ("write", "b", False), ("configure", "", False)):
        answer = page.request.get(may.format(operation, key)).json()
        assert (answer["allowed"], answer["rules"][0]["rule"]) == (allowed, "token")
    assert page.request.get("/api/may?user=guest&vhost=%2F&operation=read&name=q").status == 401
    # The gateway has no such user, so it makes no tokens for her and limits nothing.
    for place, told in (("tokens", "programs get theirs there"), ("limits/users", "has no limits of yours")):
        page.goto(f"/#/{place}")
        expect(page.get_by_text(told)).to_be_visible()
        expect(page.get_by_text("Loading …")).to_have_count(0)
        expect(page.locator("main").get_by_role("button")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    log = gateway.log_text()
    assert "code=" not in log
    assert "eyJ" not in log


@pytest.mark.parametrize(
    ("user", "button", "told"),
    [
        ("ann", "No", "did not let you in"),
        ("bob", "Log in", "no right to see"),
        ("eve", "Log in", "no right to see"),
    ],
)
def test_the_page_says_why_nobody_is_signed_in(page: Page, user: str, button: str, told: str) -> None:
    log_in(page, user, button)
    expect(page.get_by_role("alert")).to_contain_text(told)
    assert page.context.cookies() == []


def test_a_login_that_began_elsewhere_signs_nobody_in(
    page: Page, client: httpx.Client, issuer: Issuer
) -> None:
    """Somebody has a browser follow the end of a login of his own."""
    page.goto(issuer.logged_in(begun(client), {"user": "ann"}))
    expect(page.get_by_role("alert")).to_contain_text("began in another browser")
    assert page.context.cookies() == []


def test_a_code_logs_in_once(client: httpx.Client, issuer: Issuer) -> None:
    back = issuer.logged_in(begun(client), {"user": "ann"})
    kept = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    assert client.get(back).headers["location"] == "/"
    assert client.get("/api/whoami").json() == {
        "name": "ann",
        "tags": ["management"],
        "is_internal_user": False,
    }
    client.cookies.clear()
    again = client.get(back, headers={"cookie": kept})
    assert again.headers["location"] == "/#/sign-in/unanswered"
    assert issuer.refused == ["the code is unknown, or was used"]
    assert client.get("/api/whoami").status_code == 401


def test_behind_a_proxy_with_tls_browsers_come_back_to_it(
    issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The proxy is known by the configuration, and not by a header that anybody can send."""
    settings = {**settings_of(issuer), "oauth.console_url": "https://console.example.org/"}
    with Gateway(tmp_path_factory.mktemp("proxied"), settings=settings) as running:
        base = f"http://127.0.0.1:{running.ports['management']}"
        with httpx.Client(base_url=base, timeout=LIMIT_S) as client:
            begin = client.get("/sign-in/oauth", headers={"x-forwarded-host": "evil.example"})
            target = urlsplit(begin.headers["location"])
            asked = {name: values[0] for name, values in parse_qs(target.query).items()}
            assert asked["redirect_uri"] == "https://console.example.org/sign-in/oauth/done"
            assert "; Secure" in begin.headers["set-cookie"]
            back = issuer.logged_in(asked, {"user": "ann"})
            kept = begin.headers["set-cookie"].partition(";")[0]
            done = client.get(back.replace("https://console.example.org", base), headers={"cookie": kept})
            assert done.headers["location"] == "/"
            assert all("; Secure" in one for one in done.headers.get_list("set-cookie"))


def test_a_page_is_told_how_to_sign_in_as_rabbitmq_tells_it(client: httpx.Client) -> None:
    told = client.get("/api/auth").json()
    assert told["oauth_enabled"] is True
    assert (told["oauth_client_id"], told["oauth_provider_url"]) == (CLIENT, ISSUER)
    assert (told["oauth_scopes"], told["oauth_disable_basic_auth"]) == ("openid", False)
