"""Topics, subscriptions, queues and bindings of a gateway.

Users, permissions and policies are the management API's (docs/reference/management.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from penstock.sdk.addresses import start_of

if TYPE_CHECKING:
    from penstock.sdk.addresses import Start
    from penstock.sdk.client import Client

__all__ = ["Admin", "QueueInfo", "SubscriptionInfo", "TopicInfo"]


class SubscriptionInfo(TypedDict):
    """The facts about a subscription."""

    kind: str
    durable: bool
    paused: bool
    backlog: int
    """Messages that are ready."""
    unacked: int
    """Messages that are out."""
    lag: int
    """Both together."""
    mark: int
    """Everything up to this position is settled."""
    head_age_ms: int | None
    """Of the oldest message that is not settled; None: all are."""
    consumers: int
    delivered: int
    acknowledged: int
    requeued: int


class TopicInfo(TypedDict):
    """The facts about a topic."""

    topic: str
    messages: int
    first_offset: int
    next_offset: int
    last_position: int
    subscriptions: dict[str, SubscriptionInfo]


class QueueInfo(TypedDict):
    """The facts about a queue."""

    queue: str
    durable: bool
    ready: int
    unacked: int
    consumers: int
    arguments: dict[str, str]


class Admin:
    """Made by `Client.admin`. Everything raises ClientError; what is said to be done is on the disk."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # Topics

    async def create_topic(
        self, topic: str, *, max_age: str | None = None, max_bytes: int | None = None
    ) -> None:
        """Make a topic; fine when it is there like that. `max_age` is e.g. "7D"; None: everything is kept."""
        await self._client.call("create_topic", topic=topic, max_age=max_age, max_bytes=max_bytes)

    async def delete_topic(self, topic: str) -> None:
        """With its messages and subscriptions; fine when there is none."""
        await self._client.call("delete_topic", topic=topic)

    async def topics(self) -> list[str]:
        """The topics that this user may read, by name."""
        return list((await self._client.call("topics"))["topics"])

    async def describe(self, topic: str) -> TopicInfo:
        """The size of a topic, and its subscriptions with backlog and consumers."""
        return cast(TopicInfo, await self._client.call("describe", topic=topic))

    # Subscriptions

    async def lag(self, topic: str, subscription: str) -> int:
        """The messages of a subscription that are not settled. Raises NotFound."""
        from penstock.sdk.errors import NotFound

        found = (await self.describe(topic))["subscriptions"].get(subscription)
        if found is None:
            raise NotFound(
                f"topic {topic!r} has no subscription {subscription!r}", remedy="subscribe to make one"
            )
        return found["lag"]

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """End a subscription."""
        await self._client.call("delete_subscription", topic=topic, subscription=subscription)

    async def pause(self, topic: str, subscription: str) -> None:
        """Have nobody get anything of a subscription until `resume`, also over a restart of the gateway."""
        await self._client.call("pause", topic=topic, subscription=subscription)

    async def resume(self, topic: str, subscription: str) -> None:
        """The end of a pause; fine when there is none."""
        await self._client.call("resume", topic=topic, subscription=subscription)

    async def seek(self, topic: str, subscription: str, to: Start) -> None:
        """Have a subscription go on from "earliest", "latest", "-1h", a time or a message."""
        await self._client.call("seek", topic=topic, subscription=subscription, to=start_of(to))

    # Queues

    async def declare_queue(
        self,
        queue: str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Make an AMQP queue; fine when it is there like that. Its name, which the gateway makes for "".

        An exclusive one belongs to this connection, and ends with it. docs/reference/amqp.md lists
        `arguments`.
        """
        told = await self._client.call(
            "declare_queue",
            queue=queue,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=dict(arguments or {}),
        )
        return str(told["queue"])

    async def delete_queue(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """With its messages: how many were ready. Fine when there is none."""
        told = await self._client.call("delete_queue", queue=queue, if_unused=if_unused, if_empty=if_empty)
        return int(told["messages"])

    async def purge_queue(self, queue: str) -> int:
        """Drop the ready messages; how many they were. Delivered messages stay."""
        return int((await self._client.call("purge_queue", queue=queue))["messages"])

    async def queues(self) -> list[str]:
        """The queues that this user may read, by name, without topics."""
        return list((await self._client.call("queues"))["queues"])

    async def describe_queue(self, queue: str) -> QueueInfo:
        """The size of a queue, and its consumers."""
        return cast(QueueInfo, await self._client.call("describe", queue=queue))

    # Bindings

    async def bind(
        self,
        to: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        since: Start | None = None,
    ) -> None:
        """Bind a topic or queue to `exchange` by that key; to `amq.topic` for MQTT's messages.

        `since`: a queue that is new also gets what would have come from then on.
        """
        await self._client.call(
            "bind",
            queue=to,
            exchange=exchange,
            routing_key=routing_key,
            arguments=dict(arguments or {}),
            since=None if since is None else start_of(since),
        )

    async def unbind(
        self,
        to: str,
        exchange: str,
        routing_key: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Not any more; fine when it did not."""
        await self._client.call(
            "unbind",
            queue=to,
            exchange=exchange,
            routing_key=routing_key,
            arguments=dict(arguments or {}),
        )
