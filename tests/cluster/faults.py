"""The faults of a campaign, done to nodes, brokers and links. Behind each of them all processes run again.

Times are chosen around the two that decide: an owner stops to deliver after the lease, a standby claims after
the suspicion. A fault that waits for a moment of the log (a new segment, a checkpoint) looks at the owner's
folder.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.kafka import Kafka
from tests.support.cluster import Network, Node, wait_for_owner
from tests.support.proxy import Link

__all__ = ["FAULTS", "NETWORK_FAULTS", "World", "settings_of"]

LEASE_S = 2.0
SUSPECT_S = 3.0
MOMENT_S = 20.0
"""A moment of the log that does not come in this time is not waited for."""


@dataclass
class World:
    """All that faults are done to."""

    nodes: list[Node]
    brokers: list[Kafka]
    network: Network | None
    chance: random.Random

    def owner(self) -> Node:
        """The node that serves."""
        return wait_for_owner(self.nodes)

    def others(self, owner: Node) -> list[Node]:
        """All but one."""
        return [node for node in self.nodes if node is not owner]

    def links(self, node: Node) -> list[Link]:
        """Those of a node, to each broker."""
        assert self.network is not None
        return self.network.links[node.settings["cluster.node"]]

    def peers(self, node: Node) -> list[Link]:
        """Those from the other nodes to a node."""
        assert self.network is not None
        return self.network.peers[node.settings["cluster.node"]]


def settings_of(node: Node) -> list[str]:
    """The words that give a command the settings of a node."""
    return [word for key, value in node.settings.items() for word in ("--set", f"{key}={value}")]


# Processes


def kill_process(world: World) -> None:
    world.owner().signal_process(signal.SIGKILL)


def kill_machine(world: World) -> None:
    owner = world.owner()
    owner.kill_machine()
    wait_for_owner(world.others(owner))
    owner.launch()


def kill_standby(world: World) -> None:
    standby = world.chance.choice(world.others(world.owner()))
    standby.kill_machine()
    time.sleep(world.chance.uniform(0.0, 2.0))
    standby.launch()


def kill_twice(world: World) -> None:
    """The next owner dies as soon as it serves."""
    for _ in range(2):
        world.owner().signal_process(signal.SIGKILL)


def _freeze(node: Node, seconds: float) -> None:
    processes = node.children()
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def freeze(world: World) -> None:
    """Longer than the suspicion: another node serves meanwhile, and the frozen one wakes as a zombie."""
    owner = world.owner()
    owner.signal_process(signal.SIGSTOP)
    try:
        wait_for_owner(world.others(owner))
    finally:
        owner.signal_process(signal.SIGCONT)


def freeze_briefly(world: World) -> None:
    """Shorter than the lease."""
    _freeze(world.owner(), world.chance.uniform(0.2, LEASE_S - 0.5))


def freeze_between(world: World) -> None:
    """Longer than the lease, and about as long as the suspicion: a standby may claim as the owner wakes."""
    _freeze(world.owner(), world.chance.uniform(LEASE_S, SUSPECT_S + 1.0))


def freeze_standby(world: World) -> None:
    _freeze(world.chance.choice(world.others(world.owner())), world.chance.uniform(0.5, 6.0))


def freeze_all(world: World) -> None:
    """All nodes at once, longer than the suspicion: nobody may take its own sleep for the owner's silence."""
    threads = [
        threading.Thread(target=_freeze, args=(node, SUSPECT_S + world.chance.uniform(0.5, 2.0)))
        for node in world.nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# Handover


def stop_owner(world: World) -> None:
    owner = world.owner()
    owner.terminate()
    wait_for_owner(world.others(owner))
    owner.launch()


def hand_over(world: World) -> None:
    """By command. It may say that the cluster is busy."""
    owner = world.owner()
    _command(owner, "handover")
    wait_for_owner(world.nodes)


def hand_over_and_kill(world: World) -> None:
    """The old owner dies while it ends, or the new one while it begins."""
    owner = world.owner()
    asks = threading.Thread(target=_command, args=(owner, "handover"))
    asks.start()
    time.sleep(world.chance.uniform(0.8, 2.5))
    for node in world.chance.sample(world.nodes, 1):
        node.signal_process(signal.SIGKILL)
    asks.join()


def rebuild(world: World) -> None:
    """A standby makes its folder anew, and the owner dies meanwhile."""
    owner = world.owner()
    standby = world.chance.choice(world.others(owner))
    _command(owner, "rebuild", standby.settings["cluster.node"])
    owner.signal_process(signal.SIGKILL)


def _command(node: Node, *words: str) -> None:
    command = [sys.executable, "-m", "penstock", "cluster", *words, *settings_of(node)]
    subprocess.run(
        command, capture_output=True, timeout=120, check=False, env={**os.environ, **node.environment()}
    )


# Brokers


def kill_broker(world: World) -> None:
    broker = world.chance.choice(world.brokers)
    broker.kill9()
    time.sleep(world.chance.uniform(0.5, 8.0))
    broker.start()


def freeze_broker(world: World) -> None:
    broker = world.chance.choice(world.brokers)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(world.chance.uniform(0.5, 8.0))
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def freeze_brokers(world: World) -> None:
    """All of them: Kafka is gone for a while, longer than the suspicion."""
    for broker in world.brokers:
        os.kill(broker.pid, signal.SIGSTOP)
    try:
        time.sleep(world.chance.uniform(1.0, 8.0))
    finally:
        for broker in world.brokers:
            os.kill(broker.pid, signal.SIGCONT)


def kill_broker_and_process(world: World) -> None:
    """The owner dies while Kafka looks for a leader."""
    broker = world.chance.choice(world.brokers)
    broker.kill9()
    time.sleep(world.chance.uniform(0.0, 1.0))
    world.owner().signal_process(signal.SIGKILL)
    time.sleep(world.chance.uniform(0.5, 6.0))
    broker.start()


# Moments of the log


def _names(node: Node, pattern: str) -> set[str]:
    try:
        return {path.name for path in node.data_dir.glob(pattern)}
    except FileNotFoundError:  # the node makes its folder anew
        return set()


def _resent(node: Node, _: str) -> int:
    return node.log_text().count("an old file is sent again")


def _at_moment(
    name: str, pattern: str, look: Callable[[Node, str], object] = _names
) -> Callable[[World], None]:
    """`look`: tells something about a node that changes at the moment."""

    def fault(world: World) -> None:
        owner = world.owner()
        before = look(owner, pattern)
        until = time.monotonic() + MOMENT_S
        while time.monotonic() < until and look(owner, pattern) == before:
            time.sleep(0.001)
        if world.chance.random() < 0.5:
            time.sleep(world.chance.uniform(0, 0.02))
        if world.chance.random() < 0.5:
            owner.signal_process(signal.SIGKILL)
        else:
            _freeze(owner, SUSPECT_S + 2.0)

    fault.__name__ = name
    return fault


at_roll = _at_moment("at_roll", "shard-*/wal/*.wal")
at_new_file = _at_moment("at_new_file", "shard-*/**/*.new")
at_checkpoint = _at_moment("at_checkpoint", "shard-*/ckpt/*.ckpt")
at_seal = _at_moment("at_seal", "shard-*/wal/*.new")
at_backfill = _at_moment("at_backfill", "", _resent)
"""An old file is sent again."""


# Links


def _cut(world: World, node: Node, seconds: float, how: Callable[[Link], None]) -> None:
    links = world.links(node)
    for link in links:
        how(link)
    try:
        time.sleep(seconds)
    finally:
        for link in links:
            link.heal()


def _some_time(world: World) -> float:
    return world.chance.choice((0.3, LEASE_S - 0.5, SUSPECT_S - 0.3, SUSPECT_S + 3.0, 9.0))


def cut_owner(world: World) -> None:
    _cut(world, world.owner(), _some_time(world), Link.cut)


def stall_owner(world: World) -> None:
    """Bytes go neither way, connections stay."""
    _cut(world, world.owner(), _some_time(world), Link.stall)


def stall_from_owner(world: World) -> None:
    """Kafka hears nothing of the owner, which hears all."""
    _cut(world, world.owner(), _some_time(world), lambda link: link.stall(back=False))


def stall_to_owner(world: World) -> None:
    """Kafka hears the owner, which gets no answers: entries are kept that it may not confirm."""
    _cut(world, world.owner(), _some_time(world), lambda link: link.stall(there=False))


def reset_owner(world: World) -> None:
    """All connections end, again and again."""
    links = world.links(world.owner())
    for _ in range(world.chance.randint(1, 5)):
        for link in links:
            link.reset()
        time.sleep(world.chance.uniform(0.05, 0.5))


def cut_one_broker(world: World) -> None:
    """The owner does not reach one broker, which the others do: perhaps the leader."""
    link = world.chance.choice(world.links(world.owner()))
    how = world.chance.choice((Link.cut, Link.stall))
    how(link)
    time.sleep(_some_time(world))
    link.heal()


def cut_standby(world: World) -> None:
    """It suspects nobody."""
    standby = world.chance.choice(world.others(world.owner()))
    _cut(world, standby, SUSPECT_S + 3.0, world.chance.choice((Link.cut, Link.stall)))


def cut_all(world: World) -> None:
    """No node reaches Kafka."""
    links = [link for node in world.nodes for link in world.links(node)]
    how = world.chance.choice((Link.cut, Link.stall))
    for link in links:
        how(link)
    time.sleep(_some_time(world))
    for link in links:
        link.heal()


def _hold(world: World, links: list[Link], how: Callable[[Link], None]) -> None:
    for link in links:
        how(link)
    try:
        time.sleep(_some_time(world))
    finally:
        for link in links:
            link.heal()


def cut_peers(world: World) -> None:
    """Standbys do not reach the owner, which Kafka reaches: clients of theirs wait, and nobody claims."""
    _hold(world, world.peers(world.owner()), Link.cut)


def refuse_peers(world: World) -> None:
    """Something between the nodes refuses in the place of the owner, which Kafka reaches: nobody claims."""
    _hold(world, world.peers(world.owner()), Link.refuse)


def stall_to_peer(world: World) -> None:
    """The owner hears nothing of clients that come through a standby, and they hear all of it."""
    _hold(world, world.peers(world.owner()), lambda link: link.stall(back=False))


def stall_from_peer(world: World) -> None:
    """The owner hears such clients, and they hear nothing: confirms get lost on their way."""
    _hold(world, world.peers(world.owner()), lambda link: link.stall(there=False))


def cut_off_owner(world: World) -> None:
    """All links of the owner's machine, but to its own clients: a partition of the network."""
    owner = world.owner()
    how = world.chance.choice((Link.cut, Link.stall))
    _hold(world, [*world.links(owner), *world.peers(owner)], how)


def claim_at_once(world: World) -> None:
    """Standbys hear of a release at the same moment, and claim before they hear of one another."""
    owner = world.owner()
    standbys = world.others(owner)
    links = [link for node in standbys for link in world.links(node)]
    for link in links:
        link.stall()
    owner.signal_process(signal.SIGKILL)
    time.sleep(0.5)
    for link in links:
        link.heal()


FAULTS: list[Callable[[World], None]] = [
    kill_process,
    kill_machine,
    kill_standby,
    kill_twice,
    freeze,
    freeze_briefly,
    freeze_between,
    freeze_standby,
    freeze_all,
    stop_owner,
    hand_over,
    hand_over_and_kill,
    rebuild,
    kill_broker,
    freeze_broker,
    freeze_brokers,
    kill_broker_and_process,
    at_roll,
    at_new_file,
    at_checkpoint,
    at_seal,
    at_backfill,
]
"""Transactions and delayed messages are under way all the time, so each of them falls into some."""
NETWORK_FAULTS: list[Callable[[World], None]] = [
    cut_owner,
    stall_owner,
    stall_from_owner,
    stall_to_owner,
    reset_owner,
    cut_one_broker,
    cut_standby,
    cut_all,
    cut_peers,
    refuse_peers,
    stall_to_peer,
    stall_from_peer,
    cut_off_owner,
    claim_at_once,
]
"""They need the links of a `Network`."""
