"""How long a request may wait by the token that it logged in with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.protocols.amqp.codec.errors import answer
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties
from penstock.protocols.http.data.access import Access
from penstock.protocols.http.server.app import ErrorTexts, HttpApp
from penstock.protocols.http.server.messages import Request
from penstock.protocols.http.shared.traffic import Messages
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.router.authentication.tokens import Tokens
from tests.support.native_session import World


class Waiting:
    """A request that waits by a token, in a world whose time is set by hand."""

    def __init__(self, folder: Path, ttl_s: int) -> None:
        self.world = World(folder)
        self.began = time.time()
        broker, loop = self.world.broker, self.world.loop
        broker.tokens = Tokens(self.world.log.tables, broker.users, wall_s=lambda: self.began + loop.time())
        words = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
        self.access = Access(HttpApp(words), broker, Messages(words))
        self.text, _, _ = broker.tokens.issue("guest", "t", ttl_s)
        self.request = Request("GET", "/", {"authorization": f"Bearer {self.text}"}, "1.1")
        self.request.identity = broker.tokens.authenticate(self.text, True)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    waiting = Waiting(tmp_path, ttl_s=3600)
    yield waiting
    waiting.world.close()


def test_a_request_is_refused_when_the_time_of_its_token_is_up(waiting: Waiting) -> None:
    told: list[int] = []
    waiting.request.on_gone = lambda: told.append(1)
    with waiting.access.watched(waiting.request, lambda _: None):
        waiting.world.loop.advance(3599)
        assert waiting.request.refusal is None
        waiting.world.loop.advance(2)
        refusal = waiting.request.refusal
        assert refusal is not None and (refusal.status, refusal.code) == (401, "not_authorized")
    assert told == [1]


def test_one_whose_token_ended_while_it_was_begun_is_refused_at_once(waiting: Waiting) -> None:
    waiting.world.broker.tokens.revoke("guest", "t")
    with waiting.access.watched(waiting.request, lambda _: None):
        assert waiting.request.refusal is not None


def test_nothing_is_left_of_a_request_that_waits_no_more(waiting: Waiting) -> None:
    with waiting.access.watched(waiting.request, lambda _: None):
        pass
    waiting.world.loop.advance(4000)
    waiting.world.broker.tokens.revoke("guest", "t")
    assert waiting.request.refusal is None
