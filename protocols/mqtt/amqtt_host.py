"""Plugins written for amqtt, authorizing the gateway's clients: the extra `penstock[amqtt]`.

`mqtt.amqtt_config` is amqtt's own configuration file; its section `plugins` is what counts here. Each answers
as in amqtt:

    authentication plugins   at CONNECT: all that have an opinion must agree, and one must have one. Who is
                             let in has the rights of the user `mqtt.amqtt_user`. Without such plugins
                             clients log in as ever.
    topic plugins            all must allow. PUBLISH is asked per message (remembered for a minute per client,
                             action and topic); SUBSCRIBE about its filter, as `subscribe` and as `receive`:
                             deliveries are not asked about one by one.

Plugins run in a thread with an event loop of its own; a client whose plugins think is not read meanwhile, and
nobody else waits. Only what cannot wait (a will at its time, permissions that changed) waits for at most a
second, and is denied then. An exception in a plugin denies, and is logged.

Source: amqtt 0.12, plugins/manager.py and broker.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StartError

if TYPE_CHECKING:
    from penstock.router.identity import Identity
    from penstock.router.permissions import TopicOperation

__all__ = ["AmqttHost"]

logger: Final = logging.getLogger("penstock.mqtt.amqtt")

_REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 100_000
_WAIT_S: Final = 1.0
_ACTIONS: Final = {"write": ("publish",), "read": ("subscribe", "receive")}

Key = tuple[str, str, str, str]
"""User, client id ("" for who is no MQTT client), operation, topic or filter."""


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
                remedy="pip install 'penstock[amqtt]', or unset mqtt.amqtt_config",
            ) from None
        try:
            config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise _wrong(path, str(error)) from None
        plugins = config.get("plugins") if isinstance(config, dict) else None
        if not plugins:
            raise _wrong(path, "there is no section `plugins`")
        self._sessions: OrderedDict[str, Any] = OrderedDict()
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

    def session(self, client_id: str, user_name: str | None, password: bytes | None, peer: str) -> Any:
        """What amqtt knows of a client that connects."""
        from amqtt.session import Session

        session = Session()
        session.client_id = client_id
        session.username = user_name
        session.password = None if password is None else password.decode("utf-8", "replace")
        session.remote_address = peer
        session.is_anonymous = user_name is None
        return session

    def admitted(self, client_id: str, session: Any) -> None:
        """The client is in: the topic plugins are asked with this session."""
        self._sessions[client_id] = session
        self._sessions.move_to_end(client_id)
        while len(self._sessions) > _REMEMBERED_MAX:
            self._sessions.popitem(last=False)
        for key in [key for key in self._known if key[1] == client_id]:
            del self._known[key]

    async def authenticate(self, session: Any) -> bool:
        """Whether the plugins let the client in."""
        try:
            answers = await asyncio.wrap_future(
                self._in_thread(self._manager.map_plugin_auth(session=session))
            )
        except Exception:
            logger.exception("an authentication plugin failed: the client is refused")
            return False
        opinions = [answer for answer in answers.values() if answer is not None]
        return bool(opinions) and all(opinions)

    # Topics

    def knows(self, identity: Identity, operation: TopicOperation, topics: Iterable[str]) -> bool:
        """Whether `allow` answers at once for all of these."""
        now = time.monotonic()
        return all(
            self._known.get(_key(identity, operation, topic), (0.0, False))[0] > now for topic in topics
        )

    async def ask(self, identity: Identity, operation: TopicOperation, topics: Iterable[str]) -> None:
        """Have the plugins decide: after it `allow` answers at once."""
        for topic in topics:
            if not self.knows(identity, operation, (topic,)):
                allowed = await asyncio.wrap_future(self._in_thread(self._decide(identity, operation, topic)))
                self._remember(_key(identity, operation, topic), allowed)

    def allow(
        self, identity: Identity, operation: TopicOperation, topic: str, *, by_key: bool = False
    ) -> bool:
        """What the plugins have decided; asked now when they have not, for a second at most."""
        key = _key(identity, operation, topic)
        until, allowed = self._known.get(key, (0.0, False))
        if until > time.monotonic():
            return allowed
        try:
            allowed = bool(self._in_thread(self._decide(identity, operation, topic)).result(_WAIT_S))
        except TimeoutError:
            logger.warning(
                "a topic plugin took more than %g s: %s of %r is denied", _WAIT_S, operation, topic
            )
            return False
        self._remember(key, allowed)
        return allowed

    async def _decide(self, identity: Identity, operation: TopicOperation, topic: str) -> bool:
        """In the thread."""
        from amqtt.contexts import Action

        session = self._sessions.get(identity.client_id)
        if session is None:
            session = self.session(identity.client_id, identity.username, None, "")
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


def _key(identity: Identity, operation: TopicOperation, topic: str) -> Key:
    return identity.username, identity.client_id, operation, topic


def _wrong(path: str, what: str) -> StartError:
    return StartError(
        f"mqtt.amqtt_config: {path}: {what}", remedy="correct the file, or unset mqtt.amqtt_config"
    )
