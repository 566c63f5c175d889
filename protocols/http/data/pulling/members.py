"""Consumers with a name: what exclusive, failover and key-shared subscriptions hand messages to over HTTP.

A consumer is there from its first pull until a minute after its last pull or extension. For so long it is the
active one, or its keys are its own, though nobody may be waiting at the moment; then what it holds goes to
others. It has one pull at a time. The rules of a subscription's consumers are in `subscriptions.queue.group`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.protocols.http.data.pulling.leases import Leases, requeue
from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.shared.keys import Keyed
from penstock.router.names import wire
from penstock.subscriptions.errors import ConsumerRefused
from penstock.subscriptions.fault_isolation import guarded

if TYPE_CHECKING:
    from penstock.protocols.http.data.pulling.ndjson import Window
    from penstock.protocols.http.data.pulling.polls import Poll
    from penstock.protocols.http.shared.traffic import Messages
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.subscriptions.cursor._cursor import Cursor
    from penstock.subscriptions.streams.subscription import Subscription

__all__ = ["IDLE_S", "Member", "Members"]

logger: Final = logging.getLogger("penstock.http")

IDLE_S: Final = 60.0
"""How long a consumer is there without a pull or an extension."""
_CHECK_S: Final = 1.0
_MEMBERS_MAX: Final = 10_000
_NAME_MAX: Final = 255


class Member(Keyed):
    """One consumer that pulls, as its subscription sees it."""

    def __init__(self, members: Members, subscription: Subscription, name: str, user: str) -> None:
        super().__init__(name, members.messages)
        self._members = members
        self.subscription = subscription
        self.user = user
        self.used_at = 0.0
        self._poll: Poll | Window | None = None

    # The pulls'

    @property
    def is_waiting(self) -> bool:
        """It has a pull under way."""
        return self._poll is not None

    def begin(self, poll: Poll | Window) -> None:
        """A pull waits from now on. Raises HttpError 409: one does already."""
        if self._poll is not None:
            raise HttpError(409, "subscription_busy", f"consumer '{self.name}' has another pull under way")
        self._poll = poll

    def end(self, poll: Poll | Window) -> None:
        """A pull waits no more."""
        if self._poll is poll:
            self._poll = None
        self.used()

    def used(self) -> None:
        """It is still there."""
        self.used_at = self._members.clock()

    # The subscription's

    def credit(self) -> int:
        return self._poll.credit() if self._poll is not None else 0

    def deliver(self, cursor: Cursor, first: int, step: int) -> int:
        assert self._poll is not None  # without one it has no credit
        return self._poll.deliver(cursor, first, step)

    def void(self) -> None:
        """Its deliveries are void."""
        self._members.leases.end_all(self, lambda _: None)
        if self._poll is not None:
            self._poll.void()

    def cancelled(self, reason: str) -> None:
        self._members.gone(self)
        if self._poll is not None:
            self._poll.cancelled(reason)


class Members:
    """All of a gateway."""

    def __init__(
        self, broker: Broker, messages: Messages, leases: Leases, clock: Callable[[], float]
    ) -> None:
        self.clock = clock
        self.leases = leases
        self.messages = messages
        self._broker = broker
        self._members: dict[tuple[Subscription, str], Member] = {}
        broker.tick.every(_CHECK_S, self.expire)
        broker.on_permissions_changed.append(self._permissions_changed)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, subscription: Subscription, name: str, identity: Identity) -> Member:
        """The consumer of that name, which joins if it was not there.

        Raises:
            HttpError: 400 for the name, 403 another user's, 409 the subscription has no place for it, 503.

        """
        if not name or len(wire(name)) > _NAME_MAX:
            raise HttpError(
                400,
                "bad_field",
                f"consumer: a name of your own, of 1 to {_NAME_MAX} bytes",
            )
        member = self._members.get((subscription, name))
        if member is None:
            if len(self._members) >= _MEMBERS_MAX:
                raise HttpError(
                    503,
                    "too_many_consumers",
                    f"there are {_MEMBERS_MAX} already",
                    retry_after_s=60,
                )
            member = Member(self, subscription, name, identity.username)
            try:
                subscription.attach(member)
            except ConsumerRefused as error:
                raise HttpError(409, "subscription_busy", error.message) from error
            self._members[subscription, name] = member
        elif member.user != identity.username:
            raise HttpError(403, "access_refused", f"consumer '{name}' is another user's")
        member.used()
        return member

    def expire(self) -> None:
        """End those that were not seen for a minute. Called by the tick; a test may call it."""
        before = self.clock() - IDLE_S
        for member in list(self._members.values()):
            if member.used_at < before and not member.is_waiting:
                guarded(logger, f"the consumer {member.name!r} could not be ended", self._end, member)

    def _end(self, member: Member) -> None:
        self.leases.end_all(member, requeue)
        self.gone(member)
        member.subscription.detach(member)

    def gone(self, member: Member) -> None:
        """Its subscription let go of it."""
        self._members.pop((member.subscription, member.name), None)
        self.leases.end_all(member, lambda _: None)

    def _permissions_changed(self, user: str, vhost: str) -> None:
        """Those of what their user may not read any more are gone."""
        for member in list(self._members.values()):
            subscription = member.subscription
            if member.user != user or subscription.vhost != vhost:
                continue
            identity = self._broker.users.identity(user)
            stream = subscription.stream.name
            if identity is None or not self._broker.authorizer.allow(identity, vhost, "read", stream):
                self._end(member)
                member.cancelled(f"read access to queue '{stream}' was taken back")
