"""Half messages: sent now, published only when what they go with has happened.

    async with client.producer("orders", group=penstock.Group("shop", was_paid)) as producer:
        async with await producer.prepare(body) as half:
            ...                                 # the local transaction: it commits here, or raises

When the gateway hears neither commit nor rollback it asks a producer of the group, which calls its check.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.protocols.native.codec import kinds
from penstock.sdk.checking import FOREVER_S, number, text, whole
from penstock.sdk.errors import ClientError, ConnectionLost
from penstock.sdk.message import Described, MessageId

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.sdk.client import Client

__all__ = ["Answering", "Check", "Group", "Half", "Question", "prepared"]

logger: Final = logging.getLogger("penstock.sdk")

_QUESTION: Final = struct.Struct(">QIII")
_PREPARE: Final = struct.Struct(">III")


class Question(Described):
    """A prepared message of which the gateway asks what became of it."""

    def __init__(self, transaction: int, checks: int, block: bytes, body: bytes) -> None:
        self.transaction = transaction
        """As `Half.transaction`."""
        self.checks = checks
        """How often was asked, this time included."""
        self.body = body
        self.block = block

    @classmethod
    def decode(cls, payload: bytes) -> Question:
        """The payload of a CHECK frame."""
        transaction, checks, props, _ = _QUESTION.unpack_from(payload)
        at = _QUESTION.size
        return cls(transaction, checks, payload[at : at + props], payload[at + props :])


Check = Callable[[Question], bool | Awaitable[bool | None] | None]
"""True: commit it; False: roll it back; None: nobody knows yet, ask again. Functions run in a thread."""


@dataclass(frozen=True, slots=True)
class Group:
    """Producers of one user and topic that answer for one another's half messages."""

    name: str
    check: Check
    """Looks up, say in a database, whether what the message goes with has happened."""
    check_after_s: float = 6.0
    """After so long without a word the gateway asks."""
    check_each_s: float = 30.0
    max_checks: int = 15
    """A message is given up after so many questions ..."""
    expires_s: float = 3 * 86_400.0
    """... or when it is so old, ..."""
    dead_letter: str = ""
    """... and goes to this topic; "": nowhere."""

    def __post_init__(self) -> None:
        """Raises TypeError, ValueError: one of them cannot be."""
        text("the name of a group", self.name)
        if not callable(self.check):
            raise TypeError(f"the check of a group is a function, not {type(self.check).__name__}")
        for name in ("check_after_s", "check_each_s", "expires_s"):
            number(name, getattr(self, name), 0, FOREVER_S)
        whole("max_checks", self.max_checks, 1, 1000)

    def fields(self) -> dict[str, Any]:
        """The keyword arguments that `open_producer` gets from it."""
        return {
            "group": self.name,
            "check_after_ms": int(self.check_after_s * 1000),
            "check_each_ms": int(self.check_each_s * 1000),
            "max_checks": self.max_checks,
            "expires_ms": int(self.expires_s * 1000),
            "dead_letter": self.dead_letter,
        }


class Answering:
    """Answers the questions that one producer gets."""

    def __init__(self, client: Client, check: Check) -> None:
        self._client = client
        self._check = check
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def asked(self, payload: bytes) -> None:
        """A CHECK frame came; what is being looked up already is not looked up twice."""
        question = Question.decode(payload)
        if question.transaction not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._answer(question))
            self._tasks[question.transaction] = task

    async def _answer(self, question: Question) -> None:
        try:
            decision = await self._looked_up(question)
            if decision is not None:
                await self._client.call("decide", transaction=question.transaction, commit=decision)
        except ClientError as error:
            if error.code != "half_unknown":
                logger.warning("a half message is still undecided: %s", error)
        except Exception:
            logger.exception("the check of a half message failed; the gateway will ask again")
        finally:
            del self._tasks[question.transaction]

    async def _looked_up(self, question: Question) -> bool | None:
        plain = not inspect.iscoroutinefunction(self._check)
        found = await asyncio.to_thread(self._check, question) if plain else self._check(question)
        return found if found is None or isinstance(found, bool) else await found

    async def close(self) -> None:
        """Give up what is being looked up: others are asked."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Half:
    """A prepared message. `async with` commits it at the end, and rolls it back when the block raises."""

    def __init__(self, client: Client, transaction: int) -> None:
        self._client = client
        self.transaction = transaction
        """Its number: what a local transaction keeps to answer questions by."""

    async def commit(self) -> MessageId | None:
        """Have it published; None: it was before.

        Tried again when the connection is lost meanwhile. Raises ClientError.
        """
        answer = await self._decide(True)
        return None if answer is None else MessageId(answer["position"])

    async def rollback(self) -> None:
        """Have it forgotten. Raises ClientError."""
        await self._decide(False)

    async def _decide(self, commit: bool) -> dict[str, Any] | None:
        tries = 0
        while True:
            try:
                return await self._client.call("decide", transaction=self.transaction, commit=commit)
            except ConnectionLost:
                tries += 1
                if not self._client.reconnecting:
                    raise
            except ClientError as error:
                if error.code == "half_unknown" and tries:
                    return None  # the try whose answer was lost, or a check, had decided it
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
        else:
            await self.rollback()


async def prepared(client: Client, handle: int, body: bytes, block: bytes) -> Half:
    """Send a half message by the producer of that handle. Raises ClientError."""
    link = await client.link()
    answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    link.send(kinds.PREPARE, handle, _PREPARE.pack(link.number(answer), len(block), len(body)) + block + body)
    return Half(client, (await answer)["transaction"])
