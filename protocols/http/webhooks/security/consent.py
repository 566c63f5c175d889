"""The receiver's consent: asked before the first delivery, each week, and on request.

A receiver that has not agreed yet is asked again, 1 s to 5 min apart, until it does; one that agreed and says
no at a later question is sent nothing more. That there was no answer is no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.webhooks.client import NoAnswer
from penstock.protocols.http.webhooks.security.handshake import Grant

if TYPE_CHECKING:
    from penstock.protocols.http.webhooks.store import Store, Webhook

__all__ = ["Consent"]

_ASK_FIRST_S: Final = 1.0
_ASK_MAX_S: Final = 300.0
_GRANT_S: Final = 7 * 86_400.0


class Consent:
    """Of one webhook's receiver."""

    def __init__(
        self,
        webhook: Webhook,
        store: Store,
        question: Callable[[], Awaitable[Grant]],
        wall_ms: Callable[[], int],
        agreed: Callable[[Grant], None],
    ) -> None:
        """`question` asks the receiver, or raises NoAnswer; `agreed` is called when it agrees."""
        self._webhook = webhook
        self._store = store
        self._question = question
        self._wall_ms = wall_ms
        self._agreed = agreed
        self._asked = asyncio.Event()
        """It was asked by hand: whoever waits to ask looks at once."""
        self._renewing = False
        self._retired = False
        self.last_error = ""
        """The outcome of the last question, when that was not consent."""

    @property
    def given(self) -> bool:
        """Whether it agrees, or need not be asked."""
        return self._webhook.settings.verify == "none" or self._webhook.granted_ms > 0

    def falls_due(self) -> bool:
        """Whether it agreed so long ago that it is to be asked again: true once, until `renew` has ended."""
        due_ms = self._webhook.granted_ms + _GRANT_S * 1000
        if self._webhook.settings.verify == "none" or self._renewing or self._wall_ms() <= due_ms:
            return False
        self._renewing = True
        return True

    def retire(self) -> None:
        """The webhook was changed or deleted: what is answered from now on is not kept."""
        self._retired = True

    async def ask(self) -> Grant:
        """Ask now, and keep what it says. Raises NoAnswer."""
        try:
            grant = await self._question()
        except NoAnswer as error:
            self.last_error = f"handshake: {error.kind}: {error.detail}"
            raise
        if self._retired:
            return grant
        if grant.allowed:
            self.last_error = ""
            self._webhook.pace_s = grant.pace_s
            self._webhook.granted_ms = self._wall_ms()
            self._store.put(self._webhook)
            self._agreed(grant)
        else:
            self.last_error = f"handshake: {grant.reason}"
        self._asked.set()
        return grant

    async def wait(self) -> None:
        """Ask until it agrees."""
        wait_s = _ASK_FIRST_S
        loop = asyncio.get_running_loop()
        while not self.given:
            try:
                if (await self.ask()).allowed:
                    return
            except NoAnswer:
                pass
            self._asked.clear()
            timer = loop.call_later(wait_s, self._asked.set)
            try:
                await self._asked.wait()
            finally:
                timer.cancel()
            wait_s = min(wait_s * 2, _ASK_MAX_S)

    async def renew(self) -> str:
        """Ask one that agreed a week ago: why nothing more may be sent; "": it may."""
        try:
            grant = await self.ask()
        except NoAnswer:
            await asyncio.sleep(_ASK_MAX_S)
            return ""
        finally:
            self._renewing = False
        return "" if grant.allowed else f"the receiver agrees no more: {grant.reason}"
