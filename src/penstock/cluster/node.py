"""The process of one node: a standby, then perhaps the owner, then it ends. Its supervisor starts it again.

So a process is an owner once at most, and nothing of an earlier time as an owner can reach a later one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from penstock.cluster.relay import Relay
from penstock.cluster.replica import Replica
from penstock.cluster.settings import journal_options, listeners, node_name
from penstock.cluster.standby import Claimed, Standby
from penstock.cluster.watched import Watched
from penstock.config import Address, Config
from penstock.errors import StartError
from penstock.log_core.errors import LogDamaged
from penstock.log_core.files.layout import Folder
from penstock.log_core.files.lock import Lock
from penstock.log_core.replication.entries import VERSION
from penstock.log_core.replication.kafka import KafkaJournal
from penstock.protocols.net.open_socket import OpenSocket

__all__ = ["run_node"]

_LOG: Final = logging.getLogger("penstock.cluster")

_SWITCH_S: Final = 0.0005

Serve = Callable[[Replica], int]


def run_node(config: Config, serve: Serve, tell: Callable[[str], object]) -> int:
    """Be a standby, and the owner after a claim, until SIGTERM or SIGINT; the exit code.

    Args:
        config: Of the node.
        serve: Serves as the owner of a replica; its exit code.
        tell: Told `standby` when the node follows the log, `owner OFFSET` when it has claimed it, `reaches 1`
            or `reaches 0` when its clients begin or cease to reach an owner that serves, `unusable` when
            another start would not help.

    Raises:
        ConfigError, StartError: the node cannot start; with the remedy.
        LogError: the journal cannot be followed any more.

    """
    # Threads take turns: with the default of 5 ms, a confirm could wait so long for another thread of Python.
    sys.setswitchinterval(_SWITCH_S)
    journal = KafkaJournal(journal_options(config))
    try:
        journal.prepare()
        root = Path(config.log.data_dir)
        folder = Folder(root)
        folder.make()
        lock = Lock(folder.lock)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                claimed, open_sockets = runner.run(_stand_by(config, journal, root, tell))
        finally:
            lock.release()
        if claimed is None:
            for each in open_sockets.values():
                each.close()
            return 0
        tell(f"owner {claimed.claim}")
        watched = Watched(*_watched_at(config), claimed.claim)
        claimed.identity["watch"] = watched.address
        replica = Replica(
            journal,
            root,
            claimed,
            on_serving=lambda serves: tell(f"reaches {serves:d}"),
            open_sockets=open_sockets,
            lease_s=config.cluster.lease_s,
            stop_s=config.server.drain_timeout_s,
            spare_bytes=config.kafka.spare_bytes,
        )
        watched.on_end = replica.beat_soon
        try:
            return serve(replica)
        except LogDamaged as error:
            try:
                replica.give_up(error)
            except StartError:
                tell("unusable")
                raise
            return 1
        finally:
            replica.close()
            watched.close()
            if replica.owner.failed is not None:
                _LOG.error("this node is the owner no more: %s", replica.owner.failed)
    finally:
        journal.close()


def _watched_at(config: Config) -> tuple[Address | None, str]:
    """Where to listen for those who watch this node (None: anywhere), and the host by which they reach it."""
    cluster = config.cluster
    hosts = [address.host for _, address in listeners(config)]
    return (
        Address.parse(cluster.watch_listen) if cluster.watch_listen else None,
        cluster.advertise or (hosts[0] if hosts else "localhost"),
    )


def _identity(config: Config) -> dict[str, object]:
    reached = {
        name: str(Address(config.cluster.advertise or address.host, address.port))
        for name, address in listeners(config)
    }
    return {
        "node": node_name(config),
        "version": VERSION,
        "lease_s": config.cluster.lease_s,
        "listeners": reached,
        "pid": os.getpid(),
    }


async def _stand_by(
    config: Config, journal: KafkaJournal, root: Path, tell: Callable[[str], object]
) -> tuple[Claimed | None, dict[str, OpenSocket]]:
    """Follow the log until this node owns it, or is stopped; the sockets of its listeners, still open."""
    loop = asyncio.get_running_loop()
    relay = Relay(config)
    standby = Standby(
        journal,
        root,
        identity=_identity(config),
        suspect_s=config.cluster.suspect_s,
        on_follows=lambda: loop.call_soon_threadsafe(follows),
        on_owner=lambda owner: loop.call_soon_threadsafe(knows, owner),
    )
    ended: asyncio.Future[Claimed | None] = loop.create_future()

    def follows() -> None:
        tell("standby")
        words = " ".join(f"{name}={address}" for name, address in addresses.items())
        print(f"standby node={node_name(config)} {words} data={root.absolute()}", flush=True)

    def knows(owner: dict[str, object] | None) -> None:
        relay.follow(owner)
        tell(f"reaches {owner is not None:d}")

    def run() -> None:
        try:
            found = standby.run()
        except BaseException as error:
            loop.call_soon_threadsafe(ended.set_exception, error)
        else:
            loop.call_soon_threadsafe(ended.set_result, found)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, standby.stop)
    addresses = relay.start()
    try:
        threading.Thread(target=run, name="penstock-standby", daemon=True).start()
        claimed = await ended
    except BaseException:
        await relay.stop()
        raise
    return claimed, await relay.release()
