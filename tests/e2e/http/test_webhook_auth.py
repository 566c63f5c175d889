"""Authentication of webhooks, and the challenge that a receiver must answer."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.hooks import LOCAL, Hooks, bodies, check_hmac
from tests.support.receiver import Got, Receiver, Reply

pytestmark = pytest.mark.penstock_only("webhooks are penstock's own")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Gateway]:
    settings = {**LOCAL, "webhooks.ca_file": str(authority.file)}
    with Gateway(tmp_path_factory.mktemp("webhook-auth"), settings=settings) as running:
        yield running


class TokenServer:
    """Gives the tokens 1, 2, ...; while it is `down` it answers as it is told."""

    def __init__(self, lasts_s: object = 3600) -> None:
        self.count = 0
        self.lasts_s = lasts_s
        self.down: Reply | None = None
        self.asked: list[Got] = []

    def reply(self, got: Got) -> Reply:
        self.asked.append(got)
        if self.down is not None:
            return self.down
        self.count += 1
        token = {"access_token": f"t-{self.count}", "token_type": "bearer", "expires_in": self.lasts_s}
        return Reply(200, {"content-type": "application/json"}, json.dumps(token).encode())


@pytest.fixture
def tokens() -> Iterator[tuple[TokenServer, str]]:
    server = TokenServer()
    with Receiver(server.reply) as running:
        yield server, running.url


def oauth(url: str, **more: str) -> dict[str, str]:
    return {
        "type": "oauth2-client-credentials",
        "token_url": url,
        "client_id": "a:b",
        "client_secret": "canary secret",
        **more,
    }


# The challenge


def test_a_challenge_must_come_back_before_anything_is_sent(
    hooks: Hooks, receiver: Receiver, unique: str
) -> None:
    says: list[Callable[[str], bytes]] = [lambda _: b"ok"]

    def reply(got: Got) -> Reply:
        if got.headers["webhook-id"] == "challenge":
            asked = json.loads(got.body)
            assert asked["type"] == "penstock.webhook.challenge" and asked["webhook"] == unique
            return Reply(200, body=says[0](asked["challenge"]))
        return Reply(200)

    receiver.reply = reply
    hooks.queue(unique)
    hooks.publish(unique, "waits")
    made = hooks.put(unique, source={"queue": unique}, url=receiver.url, verify="challenge")
    shown = hooks.wait(unique, lambda shown: "challenge" in shown["last_error"])
    assert shown["state"] == "pending" and b"waits" not in [got.body for got in receiver.got]
    verify = f"webhooks/{unique}/verify"
    for wrong in (b'{"challenge": 5}', b'{"challenge": ', b'["x"]', b'{"challenge": "\xc3\xa9"}', b""):
        says[0] = lambda _, wrong=wrong: wrong  # type: ignore[misc]
        said = hooks.post(verify).json()
        assert not said["allowed"] and "challenge" in said["reason"], wrong
    says[0] = lambda value: json.dumps({"challenge": value}).encode()
    assert hooks.post(verify).json()["allowed"]
    assert receiver.wait_for(lambda got: any(one.body == b"waits" for one in got))
    asked = [got for got in receiver.got if got.headers["webhook-id"] == "challenge"]
    values = [json.loads(got.body)["challenge"] for got in asked]
    assert len(set(values)) == len(values) >= 7 and min(map(len, values)) >= 32, "each has its own"
    check_hmac(asked[0], made["secret"])
    assert not receiver.options, "there is one handshake, the one that was chosen"
    says[0] = lambda value: f" {value}\r\n".encode()
    assert hooks.post(verify).json()["allowed"], "as text, too"
    receiver.reply = lambda got: Reply(404)
    assert hooks.post(verify).json()["state"] == "disabled"


# Basic, Bearer


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (
            {"type": "basic", "user": "u", "password": "p:é"},
            "Basic " + base64.b64encode("u:p:é".encode()).decode(),
        ),
        ({"type": "bearer", "token": "canary-token"}, "Bearer canary-token"),
    ],
)
def test_credentials_are_sent_and_not_shown(
    hooks: Hooks, receiver: Receiver, unique: str, auth: dict[str, str], header: str
) -> None:
    hooks.queue(unique)
    made = hooks.put(unique, source={"queue": unique}, url=receiver.url, auth=auth)
    masked = {"password": "***", "token": "***"}
    assert made["auth"] == {name: masked.get(name, value) for name, value in auth.items()}
    hooks.publish(unique, "one")
    (got,) = receiver.wait_count(1)
    assert got.headers["authorization"] == header
    check_hmac(got, made["secret"])
    assert "authorization" not in receiver.options[0].headers
    again = hooks.client.put(
        f"webhooks/{unique}", json={"source": {"queue": unique}, "url": receiver.url, "auth": made["auth"]}
    )
    assert again.status_code == 400 and "*** is what is shown" in again.json()["detail"]


@pytest.mark.parametrize(
    ("auth", "field"),
    [
        ({"type": "digest"}, "auth.type"),
        ({"type": "basic", "user": "u"}, "auth.password"),
        ({"type": "basic", "user": "u:v", "password": "p"}, "auth.user"),
        ({"type": "basic", "user": "u\r\n", "password": "p"}, "auth.user"),
        ({"type": "bearer", "token": "a b"}, "auth.token"),
        ({"type": "bearer", "token": "a", "user": "u"}, "auth.user"),
        (oauth("https://h/", client_auth="jwt"), "auth.client_auth"),
        ({"type": "mtls", "certificate": "c", "key": "k"}, "auth"),
        ("none", "auth"),
    ],
)
def test_impossible_settings_are_refused_and_named(
    hooks: Hooks, receiver: Receiver, unique: str, auth: Any, field: str
) -> None:
    hooks.queue(unique)
    url = "https://127.0.0.1:9/"
    answer = hooks.client.put(
        f"webhooks/{unique}", json={"source": {"queue": unique}, "url": url, "auth": auth}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_field" and answer.json()["detail"].startswith(f"{field}: ")


# OAuth 2


def test_one_token_serves_until_it_is_refused(
    hooks: Hooks, receiver: Receiver, unique: str, tokens: tuple[TokenServer, str]
) -> None:
    server, url = tokens
    good = "Bearer t-1"

    def reply(got: Got) -> Reply:
        return Reply(200 if got.headers["authorization"] == good else 401)

    receiver.reply = reply
    hooks.queue(unique)
    made = hooks.put(unique, source={"queue": unique}, url=receiver.url, auth=oauth(url, scope="a b"))
    assert made["auth"]["client_secret"] == "***" and made["auth"]["scope"] == "a b"
    hooks.publish(unique, *"abcdefgh")
    assert sorted(bodies(receiver.wait_count(8))) == list("abcdefgh")
    (asked,) = server.asked
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    expected = base64.b64encode(b"a%3Ab:canary+secret").decode()
    assert asked.headers["authorization"] == f"Basic {expected}", "RFC 6749, 2.3.1"
    hooks.wait(unique, lambda shown: shown["delivered"] == 8)
    good = "Bearer t-2"
    hooks.publish(unique, "late")
    hooks.wait(unique, lambda shown: shown["delivered"] == 9)
    seen = [got.headers["authorization"] for got in receiver.got if got.body == b"late"]
    assert seen == ["Bearer t-1", "Bearer t-2"]
    assert {got.headers["penstock-attempt"] for got in receiver.got} == {"1"}, "it costs no attempt"
    good = "Bearer never"
    hooks.publish(unique, "refused")
    hooks.wait(unique, lambda shown: shown["dead"] == 1)
    assert len([got for got in receiver.got if got.body == b"refused"]) == 2 * 3, "two in each of 3 attempts"


def test_a_token_is_fetched_anew_shortly_before_it_expires(
    hooks: Hooks, receiver: Receiver, unique: str, tokens: tuple[TokenServer, str]
) -> None:
    server, url = tokens
    server.lasts_s = "1"
    hooks.queue(unique)
    hooks.put(unique, source={"queue": unique}, url=receiver.url, auth=oauth(url, client_auth="post"))
    count = 0
    while server.count < 3:
        count += 1
        hooks.publish(unique, str(count))
        receiver.wait_count(count)
    sent = [int(got.headers["authorization"].removeprefix("Bearer t-")) for got in receiver.got]
    assert sorted(sent) == sent and len(server.asked) < count
    form = parse_qs(server.asked[0].body.decode())
    assert form["client_id"] == ["a:b"] and form["client_secret"] == ["canary secret"]
    assert "authorization" not in server.asked[0].headers


def test_without_a_token_nothing_is_sent_and_nothing_lost(
    hooks: Hooks, receiver: Receiver, unique: str, tokens: tuple[TokenServer, str]
) -> None:
    server, url = tokens
    source = {"queue": hooks.queue(unique)}
    for down, word in (
        (Reply(400, body=b'{"error": "invalid_client", "hint": "canary secret"}'), "400 (invalid_client)"),
        (Reply(302, {"location": receiver.url}), "302"),
        (Reply(200, body=b"<html>"), "has none"),
        (Reply(200, body=b'{"access_token": "a\\r\\nx: y"}'), "has none"),
        (Reply(200, body=b'{"access_token": "a", "token_type": "mac"}'), "other than Bearer"),
    ):
        server.down = down
        hooks.put(unique, source=source, url=receiver.url, auth=oauth(url), verify="none")
        answer = hooks.post(f"webhooks/{unique}/test").json()
        assert answer["result"] == "failed" and word in answer["answer"], answer
        assert "canary" not in json.dumps(answer)
    hooks.publish(unique, "one")
    hooks.wait(unique, lambda shown: "no access token" in shown["last_error"])
    assert not receiver.got
    server.down = None
    assert bodies(receiver.wait_count(1)) == ["one"]
    refused = hooks.client.put(
        f"webhooks/{unique}",
        json={"source": source, "url": receiver.url, "auth": oauth("http://192.168.0.1/token")},
    )
    assert (refused.status_code, refused.json()["code"]) == (422, "forbidden_target")
    assert refused.json()["detail"].startswith("auth.token_url: ")


# Certificates


def test_a_certificate_of_its_own(
    gateway: Gateway,
    hooks_of: Callable[[Gateway], Hooks],
    authority: Authority,
    unique: str,
    tmp_path: Path,
) -> None:
    server, client, other = authority.server(), authority.client("hook"), authority.client("other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.cert, server.key)
    tls.load_verify_locations(authority.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    hooks = hooks_of(gateway)
    hooks.queue(unique)
    source = {"queue": unique}
    mtls = {"type": "mtls", "certificate": client.cert.read_text(), "key": client.key.read_text()}
    with Receiver(tls=tls) as receiver:
        hooks.put(unique, source=source, url=receiver.url, verify="none")
        hooks.publish(unique, "one")
        hooks.wait(unique, lambda shown: shown["last_error"] != "")
        assert not receiver.got, "it wants a certificate"
        made = hooks.put(unique, source=source, url=receiver.url, verify="none", auth=mtls)
        assert made["auth"] == {**mtls, "key": "***"}
        assert bodies(receiver.wait_count(1)) == ["one"]
        gateway.restart()
        hooks = hooks_of(gateway)
        hooks.publish(unique, "two")
        receiver.wait_for(lambda got: got[-1].body == b"two")
    for bad in (
        {**mtls, "key": other.key.read_text()},
        {**mtls, "key": "-----BEGIN"},
        {**mtls, "certificate": ""},
    ):
        settings = {"source": source, "url": "https://127.0.0.1:9/", "verify": "none", "auth": bad}
        refused = hooks.client.put(f"webhooks/{unique}", json=settings)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_field"), refused.text
    plain = {"source": source, "url": "http://127.0.0.1:9/", "verify": "none", "auth": mtls}
    assert "https" in hooks.client.put(f"webhooks/{unique}", json=plain).json()["detail"]
