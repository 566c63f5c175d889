"""`python -m tests.compare.rabbitmq`: random programs on penstock and Debian's RabbitMQ, until they differ.

A program ends at its first difference. It is printed with its seed, without the steps that the difference
does not need. Programs leave out the differences that docs/reference/amqp.md lists.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from pamqp import base, commands

from tests.compare.programs import EXCHANGES, QUEUES, Step, program
from tests.compare.wire import CONTROL, ConnectionClosed, Event, Wire
from tests.support.brokers import Gateway, RabbitMQ

__all__ = ["Difference", "Side", "brokers", "compare", "shrink"]

STEPS: Final = 24


@dataclass
class Side:
    """One broker, with a connection to it."""

    name: str
    port: int
    vhost: str = "/"
    wire: Wire = field(init=False)
    modes: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self.wire = Wire(self.port, self.vhost)
        self.modes = {}

    def again(self) -> None:
        """A new connection, if the old one cannot be used."""
        self.wire.close()
        self.__post_init__()


@dataclass(frozen=True)
class Difference:
    """Where two runs of a program part."""

    at: int
    step: Step
    seen: tuple[object, object]


class Run:
    """A program on one broker, step by step."""

    def __init__(self, side: Side, prefix: str) -> None:
        self._side = side
        self._wire = side.wire
        self._prefix = prefix
        self._queues: list[str] = []
        """Those that were there when it was asked last, and those declared since."""
        self._out: dict[int, list[int]] = defaultdict(list)
        """Delivery tags that await an acknowledgement, by channel."""
        self._free: dict[int, set[str]] = defaultdict(set)
        """Consumers without acknowledgement."""
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._confirming: set[int] = set()
        """Channels."""

    def step(self, step: Step) -> object:
        """Do it; all that is visible of it and of what it caused."""
        channel = 2 + step["on"]
        wire = self._wire
        wire.events.clear()
        try:
            self._do(channel, step)
            if step["do"] == "queue.declare":
                self._queues = sorted({*self._queues, self._named(step["queue"])})
            found = wire.rest(self._queues)
            counts = {name.removeprefix(self._prefix): n for name, n in zip(self._queues, found, strict=True)}
            self._queues = [name for name, n in zip(self._queues, found, strict=True) if n is not None]
        except ConnectionClosed as closed:
            return ("connection closed", closed.args)
        seen: dict[str, list[Event]] = defaultdict(list)
        for number in sorted(wire.events.keys() - {CONTROL}):
            for event in wire.events[number]:
                self._note(number, event, step)
                if event[0] in ("Basic.Ack", "Basic.Nack"):
                    seen["confirms"] += self._confirms(*event[:3])
                else:
                    seen[_stream(number, event)].append(_visible(event, self._prefix))
        seen["confirms"].sort()
        for number in list(wire.closed):
            self._out[number].clear()
            self._free[number].clear()
            self._confirming.discard(number)
            wire.open(number)
        return (dict(seen), counts)

    def _note(self, channel: int, event: Event, step: Step) -> None:
        match event:
            case ("deliver", tag, consumer, *_) if consumer not in self._free[channel]:
                self._out[channel].append(tag)
            case ("get-ok", tag, *_) if not step["no_ack"]:
                self._out[channel].append(tag)

    def _confirms(self, kind: str, number: int, multiple: bool) -> list[Event]:
        """One for each message: how many are told at once is the broker's choice."""
        told = {one for one in self._unconfirmed if one == number or (multiple and one < number)}
        self._unconfirmed -= told
        return [(kind, one) for one in told]

    def _do(self, channel: int, step: Step) -> None:
        values = {name: self._named(value) for name, value in step.items() if name not in ("do", "on")}
        method = _METHODS.get(step["do"])
        if method is not None:
            self._wire.send(channel, method(values))
        match step["do"]:
            case "publish":
                self._publish(channel, values)
                if channel in self._confirming:
                    # Confirms wait for a disk, and nothing else that comes waits for them.
                    self._wire.wait(channel, (commands.Basic.Ack, commands.Basic.Nack))
            case "confirm.select":
                self._confirming.add(channel)
            case "consume" if values["no_ack"]:
                self._free[channel].add(values["tag"])
            case "ack" | "nack" | "reject" as how:
                self._settle(channel, how, values)
            case "tx.commit":
                # RabbitMQ takes nothing else on the channel before it is answered.
                self._wire.wait(channel, commands.Tx.CommitOk)
            case "reopen":
                self._wire.send(channel, commands.Channel.Close(200, "", 0, 0))
                self._wire.wait(channel, commands.Channel.CloseOk)
                self._out[channel].clear()
                self._free[channel].clear()
                self._confirming.discard(channel)
                self._wire.open(channel)

    def _publish(self, channel: int, values: dict[str, Any]) -> None:
        method = commands.Basic.Publish(
            exchange=values["exchange"], routing_key=values["key"], mandatory=values["mandatory"]
        )
        if channel in self._confirming:
            self._published += 1
            self._unconfirmed.add(self._published)
        properties = commands.Basic.Properties(**values["properties"])
        self._wire.send(channel, method, properties, values["body"].encode())

    def _settle(self, channel: int, how: str, values: dict[str, Any]) -> None:
        out = self._out[channel]
        which = values["which"]
        # Beyond what is out: a tag that is not known, as every 20th program has.
        tag = out[which] if which < len(out) else (out[-1] if out else 0) + 1000 * (which == 3)
        multiple = values["multiple"] and how != "reject"
        if tag == 0 and not multiple:
            return
        if tag in out:
            self._out[channel] = [one for one in out if (one > tag if multiple else one != tag)]
        elif tag == 0:
            out.clear()
        method: base.Frame
        match how:
            case "ack":
                method = commands.Basic.Ack(tag, multiple)
            case "nack":
                method = commands.Basic.Nack(tag, multiple, values["requeue"])
            case _:
                method = commands.Basic.Reject(tag, values["requeue"])
        self._wire.send(channel, method)

    def _named(self, value: Any) -> Any:
        match value:
            case str():
                return value.replace("{p}", self._prefix)
            case list():
                return [self._named(one) for one in value]
            case dict():
                return {name: self._named(one) for name, one in value.items()}
        return value

    def end(self) -> None:
        """Remove all that is left of it."""
        self._side.again()
        for name in QUEUES:
            self._wire_do(commands.Queue.Delete(queue=self._prefix + name), commands.Queue.DeleteOk)
        for name in EXCHANGES:
            self._wire_do(commands.Exchange.Delete(exchange=self._prefix + name), commands.Exchange.DeleteOk)
        self._side.wire.events.clear()

    def _wire_do(self, method: base.Frame, answer: type[base.Frame]) -> None:
        wire = self._side.wire
        wire.send(2, method)
        if wire.wait(2, answer) is None:
            wire.open(2)


def _stream(channel: int, event: Event) -> str:
    """Events of one stream have an order that brokers promise; between them there is none."""
    match event:
        case ("deliver", *_):
            return f"{channel} deliver {event[2]}"
        case ("return", *_):
            return f"{channel} return"
    return f"{channel}"


def _visible(event: Event, prefix: str) -> Event:
    match event:
        case ("deliver", _, *rest):
            event = ("deliver", *rest)
        case ("Queue.DeclareOk", name, *_):
            event = ("Queue.DeclareOk", name)
    visible: Event = _without(event, prefix)
    return visible


def _without(value: Any, prefix: str) -> Any:
    """Without the prefix, which differs from run to run."""
    match value:
        case str():
            return value.replace(prefix, "{p}")
        case tuple():
            return tuple(_without(one, prefix) for one in value)
    return value


def _own(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: values[name] for name in names}


def _bound(values: dict[str, Any], bind: bool) -> base.Frame:
    what = {"routing_key": values["key"], "arguments": values["arguments"]}
    if values["to_exchange"]:
        between = commands.Exchange.Bind if bind else commands.Exchange.Unbind
        return between(destination=values["to"], source=values["exchange"], **what)
    kind = commands.Queue.Bind if bind else commands.Queue.Unbind
    return kind(queue=values["to"], exchange=values["exchange"], **what)


_METHODS: Final[dict[str, Callable[[dict[str, Any]], base.Frame]]] = {
    "exchange.declare": lambda values: commands.Exchange.Declare(
        exchange_type=values["type"],
        **_own(values, "exchange", "auto_delete", "internal", "durable", "arguments"),
    ),
    "queue.declare": lambda values: commands.Queue.Declare(
        **_own(values, "queue", "durable", "exclusive", "auto_delete", "arguments")
    ),
    "queue.delete": lambda values: commands.Queue.Delete(**_own(values, "queue", "if_unused", "if_empty")),
    "exchange.delete": lambda values: commands.Exchange.Delete(**_own(values, "exchange", "if_unused")),
    "bind": lambda values: _bound(values, True),
    "unbind": lambda values: _bound(values, False),
    "qos": lambda values: commands.Basic.Qos(prefetch_count=values["count"], global_=values["all"]),
    "get": lambda values: commands.Basic.Get(**_own(values, "queue", "no_ack")),
    "consume": lambda values: commands.Basic.Consume(
        consumer_tag=values["tag"], **_own(values, "queue", "no_ack", "exclusive", "arguments")
    ),
    "cancel": lambda values: commands.Basic.Cancel(values["tag"]),
    "purge": lambda values: commands.Queue.Purge(queue=values["queue"]),
    "recover": lambda _: commands.Basic.Recover(True),
    "tx.select": lambda _: commands.Tx.Select(),
    "tx.commit": lambda _: commands.Tx.Commit(),
    "tx.rollback": lambda _: commands.Tx.Rollback(),
    "confirm.select": lambda _: commands.Confirm.Select(),
}

_serial = iter(range(1 << 60))


def compare(sides: Sequence[Side], steps: Sequence[Step]) -> Difference | None:
    """Run a program on both; the first step whose outcomes differ."""
    prefix = f"p{next(_serial)}."
    runs = [Run(side, prefix) for side in sides]
    try:
        for at, step in enumerate(steps):
            seen = [run.step(step) for run in runs]
            if seen[0] != seen[1]:
                return Difference(at, step, (seen[0], seen[1]))
            if isinstance(seen[0], tuple) and seen[0][0] == "connection closed":
                return None
        return None
    finally:
        for run in runs:
            run.end()


def shrink(sides: Sequence[Side], steps: list[Step]) -> list[Step]:
    """A program with fewer steps that still differs."""
    found = compare(sides, steps)
    assert found is not None
    steps = steps[: found.at + 1]
    at = len(steps) - 2
    while at >= 0:
        fewer = steps[:at] + steps[at + 1 :]
        if compare(sides, fewer) is not None:
            steps = fewer
        at -= 1
    return steps


@contextmanager
def brokers() -> Iterator[tuple[Side, Side]]:
    """Both, started for this."""
    with tempfile.TemporaryDirectory() as folder:
        with RabbitMQ(Path(folder) / "rabbitmq") as theirs, Gateway(Path(folder) / "penstock") as ours:
            sides = Side("penstock", ours.amqp_port), Side("rabbitmq", theirs.amqp_port)
            try:
                yield sides
            finally:
                for side in sides:
                    side.wire.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--keep-going", action="store_true", help="print all differences, not the first one")
    options = parser.parse_args()
    began, failed = time.monotonic(), 0
    with brokers() as sides:
        for number in range(options.programs):
            steps = program(Random(f"{options.seed}/{number}"), STEPS)
            first = compare(sides, steps)
            if first is None:
                continue
            failed += 1
            _tell(sides, steps, first, f"--seed {options.seed}, program {number}")
            if not options.keep_going:
                break
    took = time.monotonic() - began
    print(f"seed {options.seed}: {number + 1} programs in {took:.0f} s, {failed} with a difference")
    return 1 if failed else 0


def _tell(sides: Sequence[Side], steps: list[Step], first: Difference, where: str) -> None:
    try:
        steps = shrink(sides, steps)
        found = compare(sides, steps) or first
    except AssertionError:
        steps, found = steps[: first.at + 1], first
    print(f"\n{where}{', which differed once and not again' if found is first else ''}")
    for step in steps:
        print("  ", {name: value for name, value in step.items() if value not in (False, {}, "")})
    for side, seen in zip(sides, found.seen, strict=True):
        print(f"  {side.name:>9}: {seen}")


if __name__ == "__main__":
    sys.exit(main())
