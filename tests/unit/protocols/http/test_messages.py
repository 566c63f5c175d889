"""Targets, names and routes of HTTP requests."""

from __future__ import annotations

import base64

import pytest

from penstock.protocols.http.server.login import credentials
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, split_target
from penstock.protocols.http.server.routes import Routes


def test_a_path_is_split_first_and_decoded_once() -> None:
    assert split_target("/api/queues/%2F/a%252F+b?x=1&y=%26&x=2") == (
        ["api", "queues", "/", "a%2F b"],
        {"x": ["1", "2"], "y": ["&"]},
    )
    assert split_target("/api/queues/") == (["api", "queues"], {})
    assert split_target("/") == ([], {})


@pytest.mark.parametrize("target", ["*", "http://x/y", "/a/../b", "/%00", "/%ff", "/?" + "a&" * 101])
def test_a_target_that_names_nothing_here_is_refused(target: str) -> None:
    with pytest.raises(HttpError) as caught:
        split_target(target)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "header", ["", "Bearer x", "Basic", "Basic !!!", "Basic " + base64.b64encode(b"nocolon").decode()]
)
def test_credentials_that_are_none_are_refused(header: str) -> None:
    with pytest.raises(HttpError) as caught:
        credentials(header)
    assert caught.value.status == 401


def test_a_password_may_have_colons() -> None:
    assert credentials("basic " + base64.b64encode(b"me:a:b").decode()) == ("me", b"a:b")


def request(method: str, target: str) -> Request:
    made = Request(method, target, {}, "1.1")
    made.segments, made.query = split_target(target)
    return made


def test_a_literal_goes_before_a_name_and_names_come_decoded() -> None:
    async def literal(_: Request) -> Response:
        return Response()

    async def named(_: Request) -> Response:
        return Response()

    routes = Routes()
    routes.add("GET", "/api/queues/detailed", literal)
    routes.add("GET", "/api/queues/{vhost}", named)
    routes.add("DELETE", "/api/queues/{vhost}/{name}", named)
    assert routes.find(request("GET", "/api/queues/detailed")) is literal
    found = request("HEAD", "/api/queues/%2F")
    assert routes.find(found) is named
    assert found.names == {"vhost": "/"}
    with pytest.raises(HttpError) as caught:
        routes.find(request("POST", "/api/queues/a/b"))
    assert caught.value.status == 405
    assert caught.value.headers == (("allow", "DELETE"),)
    with pytest.raises(HttpError) as missing:
        routes.find(request("GET", "/api/other"))
    assert missing.value.status == 404


def test_text_that_is_no_utf_8_can_be_shown() -> None:
    name = b"a\xff".decode("utf-8", "surrogateescape")
    assert (
        dumps({name: [name, b"\xfe", 2**70]})
        == '{"a\ufffd":["a\ufffd","\ufffd",1.1805916207174113e+21]}'.encode()
    )
