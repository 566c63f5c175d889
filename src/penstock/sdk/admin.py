"""Topics, subscriptions and bindings of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sdk.client import Client

__all__ = ["Admin"]


class Admin:
    """Made by `Client.admin`. Everything raises ClientError; what is said to be done is on the disk."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_topic(
        self, topic: str, *, max_age: str | None = None, max_bytes: int | None = None
    ) -> None:
        """Make a topic; fine when it is there like that. `max_age` is e.g. "7D"; None: everything is kept."""
        await self._client.request("create_topic", topic=topic, max_age=max_age, max_bytes=max_bytes)

    async def delete_topic(self, topic: str) -> None:
        """With its messages and subscriptions; fine when there is none."""
        await self._client.request("delete_topic", topic=topic)

    async def topics(self) -> list[str]:
        """The topics that this user may read, by name."""
        return list((await self._client.request("topics"))["topics"])

    async def describe(self, topic: str) -> dict[str, Any]:
        """What a topic holds, and its subscriptions with backlog and consumers."""
        return await self._client.request("describe", topic=topic)

    async def bind(self, topic: str, exchange: str, routing_key: str) -> None:
        """What `exchange` routes by that key goes to the topic, too: MQTT's messages by `amq.topic`."""
        await self._client.request("bind", topic=topic, exchange=exchange, routing_key=routing_key)

    async def unbind(self, topic: str, exchange: str, routing_key: str) -> None:
        """Not any more; fine when it did not."""
        await self._client.request("unbind", topic=topic, exchange=exchange, routing_key=routing_key)

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """End a subscription."""
        await self._client.request("delete_subscription", topic=topic, subscription=subscription)

    async def pause(self, topic: str, subscription: str) -> None:
        """Have nobody get anything of a subscription until `resume`, also over a restart of the gateway."""
        await self._client.request("pause", topic=topic, subscription=subscription)

    async def resume(self, topic: str, subscription: str) -> None:
        """The end of a pause; fine when there is none."""
        await self._client.request("resume", topic=topic, subscription=subscription)

    async def seek(self, topic: str, subscription: str, to: str) -> None:
        """Have a subscription go on from "earliest", "latest", "pos:NUMBER", "-1h" or a time."""
        await self._client.request("seek", topic=topic, subscription=subscription, to=to)
