"""The subject of a request that administers something: noted in the audit trail when it is done, or refused.

The handler does not know of it. It waits for its changes (`traffic.kept`), in the turn of the change:
there the entry is made, and is written together with the change, before anybody is told that it is done. A
request that fails, or changes nothing that is waited for, has its entry at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.protocols.http.server.messages import HttpError, Request, Response

if TYPE_CHECKING:
    from penstock.protocols.http.server.routes import Handler
    from penstock.router.audit import Audit

__all__ = ["Pending", "View", "audited", "pending"]

View = Callable[[Mapping[str, str]], Any]
"""How a thing is now, by the names in the path, as JSON; None: there is none. A key that begins with "_" has
what is compared and not noted."""


class Pending:
    """One request."""

    def __init__(self, audit: Audit, action: str, request: Request, view: View | None) -> None:
        self._audit = audit
        self._action = action
        self._request = request
        self._view = view
        self._noted = False
        self._before = self._seen()

    def _seen(self) -> Any:
        return None if self._view is None else self._view(self._request.names)

    def done(self) -> int:
        """It was done, in this turn; the LSN of the entry."""
        if self._noted:
            return 0
        after = self._seen()
        _compare(self._before, after)
        return self._note("done", "", after)

    def failed(self, result: str, detail: str) -> None:
        """It was refused, or went wrong."""
        if not self._noted:
            self._note(result, detail, None)

    def begun(self) -> int:
        """It takes long, and changes things on its way: that it began is noted, too."""
        lsn = self._note("begun", "", None)
        self._noted = False
        return lsn

    def _note(self, result: str, detail: str, after: Any) -> int:
        self._noted = True
        request, identity = self._request, self._request.identity
        return self._audit.note(
            self._action,
            user=identity.username if identity is not None else "",
            peer=request.peer_host,
            protocol="http",
            target=request.names,
            before=_public(self._before),
            after=_public(after),
            result=result,
            detail=detail,
        )


_PENDING: Final[ContextVar[Pending | None]] = ContextVar("penstock-audit", default=None)


def pending() -> Pending | None:
    """Of the request that is being handled, when it is one to be noted."""
    return _PENDING.get()


def audited(
    audit: Audit, action: str, view: View | None, handler: Handler, *, long: bool, kept: Callable[[int], Any]
) -> Handler:
    """The handler, whose requests are noted. `kept` waits until an entry is on the disk."""

    async def handle(request: Request) -> Response:
        if request.part:
            return await handler(request)  # worker 0 sees to the whole, and notes it
        one = Pending(audit, action, request, view)
        token = _PENDING.set(one)
        try:
            if long:
                one.begun()
            response = await handler(request)
        except HttpError as error:
            one.failed(error.code, error.detail)
            raise
        except PenstockError as error:
            one.failed("refused", error.message)
            raise
        except (Exception, asyncio.CancelledError) as error:
            one.failed("failed", type(error).__name__)
            raise
        finally:
            _PENDING.reset(token)
        await kept(one.done())
        return response

    return handle


def _public(seen: Any) -> Any:
    if isinstance(seen, dict):
        return {name: value for name, value in seen.items() if not name.startswith("_")}
    return seen


def _compare(before: Any, after: Any) -> None:
    """Note the subject if it was not noted and differs now."""
    if isinstance(before, dict) and isinstance(after, dict):
        changed = [name[1:] for name in after if name.startswith("_") and before.get(name) != after[name]]
        if changed:
            after["changed"] = changed
