"""Plugins written for amqtt, authorizing the gateway's clients: the extra `penstock[amqtt]`.

`mqtt.amqtt_config` is amqtt's own configuration file; its section `plugins` is what counts here. Each answers
as in amqtt:

    authentication plugins   at CONNECT: all that have an opinion must agree, and one must have one. Their
                             clients have the rights of the user `mqtt.amqtt_user`. Without such plugins
                             clients log in as ever.
    topic plugins            all must allow. PUBLISH is asked per message (remembered for a minute per client,
                             action and topic); SUBSCRIBE about its filter, as `subscribe` and as `receive`:
                             deliveries are not asked about one by one.

Plugins run in a thread with an event loop of its own; an MQTT client whose plugins think is not read
meanwhile, and nobody else waits, whatever a plugin does. Operations that cannot wait (a publish or a
binding by another protocol) stop the gateway for the answer: for `_WAIT_S` in each minute altogether, no
more. Those without an answer by then are denied, and asked about in the background, so that they may be
allowed when they are tried again. An exception in a plugin denies, and is logged.

A client is a connection's place, vhost and client id, with what it logged in with: clients of two vhosts, or
one behind the other, share no answers.

Source: amqtt 0.12, plugins/manager.py and broker.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StartError
from penstock.extras import install
from penstock.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.authorization.permissions import TopicOperation

__all__ = ["AmqttHost"]

logger: Final = logging.getLogger("penstock.mqtt.amqtt")

_REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 100_000
_WAIT_S: Final = 1.0
_WAIT_EACH_S: Final = 60.0
"""So long the gateway stands still for answers in each such time."""
_ACTIONS: Final = {"write": ("publish",), "read": ("subscribe", "receive")}

Key = tuple[object, str, str]
"""The client (who is no MQTT client: user and vhost), operation, topic or filter."""


@dataclass(eq=False, slots=True)
class AmqttClient:
    """One login of a client."""

    session: Any
    """The client, as amqtt knows it."""


class AmqttHost:
    """The plugins of one file; a `TopicGuard` of the router."""

    individual = True
    slow = True

    def __init__(self, path: str) -> None:
        """Load the plugins that the file at `path` names.

        Raises:
            StartError: amqtt is not installed, the file cannot be read, or a plugin of it cannot be loaded.

        """
        try:
            import yaml  # type: ignore[import-untyped]
            from amqtt.contexts import BaseContext, BrokerConfig
            from amqtt.plugins.manager import PluginManager
        except ImportError as error:
            raise StartError(
                f"mqtt.amqtt_config needs amqtt, which is not installed ({error})",
                remedy=f"{install('amqtt')}, or unset mqtt.amqtt_config",
            ) from None
        try:
            config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise _wrong(path, str(error)) from None
        plugins = config.get("plugins") if isinstance(config, dict) else None
        if not plugins:
            raise _wrong(path, "there is no section `plugins`")
        self._clients: OrderedDict[tuple[str, str], AmqttClient] = OrderedDict()
        self._waits_from = 0.0
        self._left_s = _WAIT_S
        self._known: OrderedDict[Key, tuple[float, bool]] = OrderedDict()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-amqtt", daemon=True)
        self._thread.start()

        async def load() -> Any:
            context = BaseContext()
            context.config = BrokerConfig(plugins=plugins)
            return PluginManager("penstock.mqtt.amqtt", context)

        try:
            self._manager = self._in_thread(load()).result()
        except Exception as error:
            self.close()
            why = error if str(error) else error.__cause__ or error
            raise _wrong(path, f"{type(error).__name__}: {why}") from error
        self.authenticates: Final = bool(self._manager._auth_plugins)
        """Whether there is a plugin that lets clients in."""

    def _in_thread(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the plugins and their thread."""
        if hasattr(self, "_manager"):
            try:
                self._in_thread(self._manager.close()).result(_WAIT_S)
            except Exception:
                logger.exception("a plugin failed at its end")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Clients

    def client(self, client_id: str, user_name: str | None, password: bytes | None, peer: str) -> AmqttClient:
        """A client that connects: `authenticate`, then `admit` it."""
        from amqtt.session import Session

        session = Session()
        session.client_id = client_id
        session.username = user_name
        session.password = None if password is None else password.decode("utf-8", "replace")
        session.remote_address = peer
        session.is_anonymous = user_name is None
        return AmqttClient(session)

    def admit(self, vhost: str, client_id: str, client: AmqttClient) -> AmqttClient | None:
        """From now on this is who has the place, instead of the one that is given back."""
        before = self._clients.pop((vhost, client_id), None)
        client.session.client_id = client_id
        self._clients[vhost, client_id] = client
        while len(self._clients) > _REMEMBERED_MAX:
            self._clients.popitem(last=False)
        return before

    def take_back(self, vhost: str, client_id: str, before: AmqttClient | None) -> None:
        """The gateway refused the client that was admitted: the place is that of the one before."""
        if before is not None:
            self._clients[vhost, client_id] = before
        else:
            self._clients.pop((vhost, client_id), None)

    async def authenticate(self, client: AmqttClient) -> bool:
        """Whether the plugins let the client in."""
        try:
            answers = await asyncio.wrap_future(
                self._in_thread(self._manager.map_plugin_auth(session=client.session))
            )
        except Exception:
            logger.exception("an authentication plugin failed: the client is refused")
            return False
        opinions = [answer for answer in answers.values() if answer is not None]
        return bool(opinions) and all(opinions)

    # Topics

    def _who(self, identity: Identity, vhost: str) -> object:
        client = self._clients.get((vhost, identity.client_id)) if identity.client_id else None
        return client or (identity.username, identity.client_id, vhost)

    def _answer(self, key: Key) -> bool | None:
        """A recent decision of the plugins; None: nothing."""
        until, allowed = self._known.get(key, (0.0, False))
        return allowed if until > time.monotonic() else None

    def knows(self, identity: Identity, vhost: str, operation: TopicOperation, topics: Iterable[str]) -> bool:
        """Whether `allow` answers at once for all of these."""
        who = self._who(identity, vhost)
        return all(self._answer((who, operation, topic)) is not None for topic in topics)

    async def ask(
        self, identity: Identity, vhost: str, operation: TopicOperation, topics: Iterable[str]
    ) -> None:
        """Have the plugins decide: after it `allow` answers at once."""
        who = self._who(identity, vhost)
        for topic in topics:
            key = who, operation, topic
            if self._answer(key) is None:
                self._remember(key, await asyncio.wrap_future(self._in_thread(self._decide(identity, key))))

    async def ask_about_will(self, identity: Identity, client: AmqttClient, topic: str) -> None:
        """Have the plugins decide about the will of a client that is not admitted yet."""
        key = client, "write", topic
        self._remember(key, await asyncio.wrap_future(self._in_thread(self._decide(identity, key))))

    filters = False

    def may_subscribe(self, identity: Identity, topic_filter: str, *, vhost: str = "") -> bool:
        """Whether the plugins allow a filter as it is written: they are asked at SUBSCRIBE."""
        return self.allow(identity, "read", topic_filter, vhost=vhost)

    def allow(
        self,
        identity: Identity,
        operation: TopicOperation,
        topic: str,
        *,
        by_key: bool = False,
        vhost: str = "",
    ) -> bool:
        """The decision of the plugins; asked now when they have not, as long as there is time for it."""
        key = self._who(identity, vhost), operation, topic
        allowed = self._answer(key)
        if allowed is not None:
            return allowed
        began = time.monotonic()
        if began >= self._waits_from + _WAIT_EACH_S:
            self._waits_from, self._left_s = began, _WAIT_S
        future: Future[bool] = self._in_thread(self._decide(identity, key))
        try:
            allowed = future.result(max(self._left_s, 0.0))
        except TimeoutError:
            logger.warning(
                "topic plugins took %g s of these %g s: %s of %r is denied now, and may be allowed when "
                "it is tried again",
                _WAIT_S,
                _WAIT_EACH_S,
                operation,
                topic,
            )
            loop = asyncio.get_running_loop()
            future.add_done_callback(lambda done: self._answered(loop, key, done))
            return False
        finally:
            self._left_s -= time.monotonic() - began
        self._remember(key, allowed)
        return allowed

    def _answered(self, loop: asyncio.AbstractEventLoop, key: Key, done: Future[bool]) -> None:
        """In the thread: what nobody waits for any more was decided after all."""
        if not done.cancelled():
            with suppress(RuntimeError):  # the gateway has stopped
                loop.call_soon_threadsafe(self._remember, key, done.result())

    async def _decide(self, identity: Identity, key: Key) -> bool:
        """In the thread."""
        from amqtt.contexts import Action

        who, operation, topic = key
        if not isinstance(who, AmqttClient):
            who = self.client(identity.client_id, identity.username, None, "")
        session = who.session
        try:
            for action in _ACTIONS[operation]:
                answers = await self._manager.map_plugin_topic(
                    session=session, topic=topic, action=Action(action)
                )
                if not all(answers.values()):
                    return False
        except Exception:
            logger.exception("a topic plugin failed: %s of %r is denied", operation, topic)
            return False
        return True

    def _remember(self, key: Key, allowed: bool) -> None:
        self._known[key] = time.monotonic() + _REMEMBERED_S, allowed
        self._known.move_to_end(key)
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)


def _wrong(path: str, what: str) -> StartError:
    return StartError(
        f"mqtt.amqtt_config: {path}: {what}", remedy="correct the file, or unset mqtt.amqtt_config"
    )
