"""The port for further rules on topics, which a front end provides.

They are asked wherever the topic permissions of the exchange of topics (`exchanges.MQTT_EXCHANGE`) are. So
they apply to a topic whatever the protocol: see `Authorizer.allow_topic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.authorization.permissions import TopicOperation

__all__ = ["TopicGuard"]


class TopicGuard(Protocol):
    """Rules that everybody is held to besides the permissions."""

    @property
    def individual(self) -> bool:
        """Whether clients of one user may have different rights."""

    @property
    def slow(self) -> bool:
        """Whether decisions may take long: then each publish is asked about by itself, in Python, after the
        front end has waited for the decision.
        """

    @property
    def filters(self) -> bool:
        """Whether a session may have a filter that is wider than what its user may read. Its front end then
        asks `allow` about the topic of each delivery.
        """

    def may_subscribe(self, identity: Identity, topic_filter: str, *, vhost: str = "") -> bool:
        """Whether a session of the identity may subscribe to this filter: with `filters` if it may read
        something of what the filter matches, else if it may read all of it.
        """

    def allow(
        self,
        identity: Identity,
        operation: TopicOperation,
        topic: str,
        *,
        by_key: bool = False,
        vhost: str = "",
    ) -> bool:
        """Whether the identity may publish to this topic ("write") or read all that this filter matches
        ("read") in `vhost`.

        With `by_key` the topic stands for a routing key, or a filter for a binding key, and each key stands
        for several topics: a dot is then no other than a slash, and a wildcard in front matches topics that
        begin with `$`. A filter for "write" is a binding that leads whatever it matches to such topics.
        """
