"""Answers that pages share: who gets one that was made for another, and how old it is."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping

import pytest

from penstock.protocols.http.server.messages import HttpError, Request, Response
from penstock.protocols.http.shared.compact import compact_json
from penstock.protocols.http.shared.shared_answers import SharedAnswers
from penstock.router.authorization.identity import Identity

ALL = frozenset({"monitoring"})
LOOKS: Mapping[str, str] = {"cache-control": "max-age=2", "accept-encoding": "gzip"}


class Page:
    """A handler that counts, and waits until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.made = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.fails = False
        self.serve = SharedAnswers(lambda: self.now).shared(self.handle)

    async def handle(self, request: Request) -> Response:
        self.made += 1
        made = self.made
        await self.may_go_on.wait()
        if self.fails:
            raise HttpError(400, "bad_request", "no page")
        return compact_json(request, {"made": made, "rest": "x" * 2000})

    async def ask(
        self, headers: Mapping[str, str] = LOOKS, tags: frozenset[str] = ALL
    ) -> tuple[int, Response]:
        """Which answer it is, and the answer."""
        request = Request("GET", "/api/overview", headers, "1.1", identity=Identity("u", tags))
        response = await self.serve(request)
        body = response.body
        if ("content-encoding", "gzip") in response.headers:
            body = gzip.decompress(body)
        return (json.loads(body)["made"] if body else 0), response


def age_of(response: Response) -> str | None:
    return dict(response.headers).get("age")


async def test_pages_that_look_at_about_the_same_time_share_one_answer() -> None:
    page = Page()
    page.may_go_on.clear()
    waiting = [asyncio.ensure_future(page.ask()) for _ in range(3)]
    await asyncio.sleep(0)
    page.may_go_on.set()
    assert [made for made, _ in await asyncio.gather(*waiting)] == [1, 1, 1]
    page.now += 2
    made, response = await page.ask()
    assert (made, age_of(response)) == (1, "2")
    page.now += 0.1
    made, response = await page.ask()
    assert (made, age_of(response)) == (2, None)


async def test_a_request_that_does_not_say_so_gets_an_answer_of_its_own() -> None:
    page = Page()
    assert (await page.ask())[0] == 1
    others = (
        {},
        {"cache-control": "no-cache"},
        {"cache-control": "max-age=0"},
        {"cache-control": "max-age=x"},
    )
    for number, headers in enumerate(others):
        assert (await page.ask(headers))[0] == 2 + number
    assert (await page.ask())[0] == 1


async def test_users_who_do_not_see_everything_share_nothing() -> None:
    page = Page()
    assert (await page.ask())[0] == 1
    for number in (2, 3):
        assert (await page.ask(tags=frozenset({"management"})))[0] == number


async def test_each_client_gets_the_shared_answer_as_it_takes_it() -> None:
    page = Page()
    _, response = await page.ask()
    (tag,) = (value for name, value in response.headers if name == "etag")
    _, known = await page.ask({**LOOKS, "if-none-match": tag})
    assert (known.status, known.body) == (304, b"")
    made, plain = await page.ask({"cache-control": "max-age=2"})
    assert made == 1 and plain.body.startswith(b"{")
    _, again = await page.ask()
    assert again.body is response.body  # compressed once


async def test_one_that_fails_or_whose_client_goes_is_shared_with_nobody() -> None:
    page = Page()
    page.fails = True
    page.may_go_on.clear()
    first, second = (asyncio.ensure_future(page.ask()) for _ in range(2))
    await asyncio.sleep(0)
    page.may_go_on.set()
    for one in (first, second):
        with pytest.raises(HttpError, match="no page"):
            await one
    assert page.made == 2
    page.fails = False
    page.may_go_on.clear()
    first, second = (asyncio.ensure_future(page.ask()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    page.may_go_on.set()
    assert (await second)[0] == 4


async def test_only_so_many_are_kept() -> None:
    page = Page()
    answers = SharedAnswers(lambda: page.now)
    serve = answers.shared(page.handle)
    for number in range(100):
        page.now += 0.01
        await serve(Request("GET", f"/api/queues?page={number}", LOOKS, "1.1", identity=Identity("u", ALL)))
    assert len(answers) <= 32
    page.now += 10
    await serve(Request("GET", "/api/queues", LOOKS, "1.1", identity=Identity("u", ALL)))
    assert len(answers) == 1
