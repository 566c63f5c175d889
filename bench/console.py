"""Cost of the console where there is very much: `python -m bench.console`.

    idle      a gateway that does nothing, without queues and with --queues: CPU seconds over a minute, with
              rates and their history on
    pages     CPU of one page of 100 of --queues queues, in several orders; and how long a publisher waits for
              its confirm while a page in the order of a counter is asked for each second, beside the same
              without
    stalls    how long what the pages ask for holds the event loop, in CPU time (bench/console_stalls.py)
    search    the same while a search for a text reads a log of --messages, again and again
    first     how soon a browser that has nothing yet shows the first of --queues queues
              (bench/console_pages.py)
    watched   messages per CPU second with the history on and --pages pages open, and without
              (bench/console_pages.py)
    find      one of --messages is found by header, id, text and time (bench/console_find.py)
    delayed   the same while the list of --delayed messages that wait for their time is asked for each second

The publisher sends a persistent message of 1 KiB every 5 ms, whatever became of the one before; time counts
from when a message was due (bench/publish_latency.py). It shares the machine with the gateway. Slices of 2 s
with and without take turns, --rounds times --seconds of each. Printed are p50 and p99 of all of them, and the
interval in which their ratio is (bench/interleaved.py).
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench import console_find, console_pages, console_stalls
from bench.cpu import cpu_seconds, wait_until_idle
from bench.interleaved import Interval, in_turns, quantile, ratio
from bench.load_amqp import Client, frame, method, short_string
from bench.publish_latency import beside, bulk, declare, probe
from tests.support.brokers import Gateway

SETTINGS = {
    "management.listen": "127.0.0.1:0",
    "http.listen": "127.0.0.1:0",
    "log.checkpoint_bytes": "256MiB",
}
ORDERS = (
    "name",
    "messages_ready",
    "consumers",
    "type",
    "policy",
    "message_stats.publish",
    "message_stats.publish_details.rate",
    "messages_details.rate",
)
_SLICE_S = 2.0
_CASES = ("idle", "pages", "stalls", "search", "first", "watched", "find", "delayed")
LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()


class Api:
    """One connection to a listener of a gateway."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def send(self, method_: str, path: str, body: object = None) -> object:
        """The JSON of the answer."""
        headers = {"authorization": LOGIN, "accept-encoding": "gzip", "content-type": "application/json"}
        content = None if body is None else json.dumps(body)
        self._connection.request(method_, path, content, headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        assert answer.status < 300, (path, answer.status, raw[:300])
        return None if not raw or answer.headers.get("content-encoding") == "gzip" else json.loads(raw)


def each_second(port: int, path: str, running: Synchronized[int], moved: Synchronized[int]) -> None:
    """Ask for a path each second."""
    api, due = Api(port), time.monotonic()
    while running.value:
        api.send("GET", path)
        moved.value += 1
        due = max(due + 1, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def searching(port: int, running: Synchronized[int], moved: Synchronized[int]) -> None:
    """Search all of the log for a text that is nowhere, again and again; the bytes that were read."""
    api = Api(port)
    asked: dict[str, object] = {"body": {"contains": "nowhere to be found"}, "exchange": ""}
    while running.value:
        answer = api.send("POST", f"/v1/vhosts/{quote('/', '')}/log/search", asked)
        assert isinstance(answer, dict)
        moved.value += answer["scanned_bytes"]
        asked.pop("cursor", None)
        if "cursor" in answer:
            asked["cursor"] = answer["cursor"]


def compared(
    what: str,
    gateway: Gateway,
    rounds: int,
    seconds: float,
    bar: Callable[[Interval, float], str],
    *work: object,
) -> None:
    """Probe with and without what happens beside, in short turns, and print both.

    `bar`: what is said of the ratio of p99, and of p99 without it (s).
    """
    done: list[int] = []

    def slice_(with_it: bool) -> list[float]:
        with beside(*([work] if with_it else [])) as moved:
            took = probe(gateway.amqp_port, _SLICE_S)
        done.append(sum(count.value for count in moved))
        return took

    probe(gateway.amqp_port, 2.0)
    pairs = in_turns(max(int(rounds * seconds / _SLICE_S), 1), slice_)
    for side, with_it in ((0, "without"), (1, "with")):
        values = [value for pair in pairs for value in pair[side]]
        p50, p99 = (quantile(values, of) * 1e3 for of in (0.5, 0.99))
        beside_it = f"   {sum(done) / len(pairs) / _SLICE_S:,.1f} per s beside it" if side else ""
        print(f"{f'{what}, {with_it}':44} p50 {p50:7.3f}  p99 {p99:7.3f} ms{beside_it}", flush=True)
    alone = quantile([value for pair in pairs for value in pair[0]], 0.99)
    for name, of in (("p50", 0.5), ("p99", 0.99)):
        found = ratio(pairs, of)
        said = bar(found, alone) if of == 0.99 else ""
        print(
            f"{f'with, of without: {name}':44} {found.ratio:7.3f}, "
            f"95 % in {found.low:.3f} to {found.high:.3f}   {said}",
            flush=True,
        )


def within_a_tenth(found: Interval, _: float) -> str:
    """p99 may be a tenth higher."""
    return f"at most 1.1: {found.verdict(1.1)}"


def within_10_ms(found: Interval, alone: float) -> str:
    """p99 may be 10 ms higher."""
    return f"at most 10 ms more: {found.verdict(1 + 0.01 / alone)}"


def idle(folder: Path, queues: int, seconds: float) -> None:
    """CPU of a gateway that does nothing."""
    for count in (0, queues):
        with Gateway(folder / f"idle-{count}", settings=SETTINGS) as gateway:
            declare(gateway.amqp_port, [f"queue-{number:06}" for number in range(count)])
            wait_until_idle(gateway.pid)
            time.sleep(11)  # two passes: all were counted once
            before, began = cpu_seconds(gateway.pid), time.monotonic()
            time.sleep(seconds)
            used = (cpu_seconds(gateway.pid) - before) / (time.monotonic() - began)
            print(f"{f'idle, {count:,} queues':44} {100 * used:7.2f} % of a core", flush=True)


def pages(folder: Path, queues: int, rounds: int, seconds: float) -> None:
    """A page of very many queues."""
    with Gateway(folder / "pages", settings=SETTINGS) as gateway:
        declare(gateway.amqp_port, [f"queue-{number:06}" for number in range(queues)])
        client = Client(gateway.amqp_port)
        rng = random.Random(23)
        for number in rng.sample(range(queues), min(queues, 1000)):
            client.socket.sendall(bulk(f"queue-{number:06}", rng.randrange(1, 5)))
        client.close()
        wait_until_idle(gateway.pid)
        port = gateway.ports["management"]
        api = Api(port)
        for order in ORDERS:
            path = f"/api/queues?page=3&page_size=100&sort={order}&sort_reverse=true"
            api.send("GET", path)
            before, count = cpu_seconds(gateway.pid), 10
            for _ in range(count):
                api.send("GET", path)
            used = (cpu_seconds(gateway.pid) - before) / count
            print(f"{f'a page of {queues:,} by {order}':60} {used * 1e3:7.1f} ms of CPU", flush=True)
        path = "/api/queues?page=1&page_size=100&sort=messages_ready&sort_reverse=true"
        compared("a page each second", gateway, rounds, seconds, within_10_ms, each_second, port, path)


def search(folder: Path, messages: int, rounds: int, seconds: float) -> None:
    """A search of a log."""
    with Gateway(folder / "search", settings=SETTINGS) as gateway:
        console_find.publish(gateway, messages)
        compared("a search", gateway, rounds, seconds, within_a_tenth, searching, gateway.ports["http"])


def search_once(port: int, asked: dict[str, Any]) -> dict[str, Any]:
    """One answer, on a connection of its own."""
    answer = Api(port).send("POST", console_find.path(), asked)
    assert isinstance(answer, dict)
    return answer


def delayed(folder: Path, count: int, rounds: int, seconds: float) -> None:
    """The list of messages that wait for their time."""
    with Gateway(folder / "delayed", settings=SETTINGS) as gateway:
        declare(gateway.amqp_port, ["due"])
        client = Client(gateway.amqp_port)
        client.socket.settimeout(120)
        headers = short_string("x-delay") + b"I" + (86_400_000).to_bytes(4, "big")
        properties = (0x3000).to_bytes(2, "big") + len(headers).to_bytes(4, "big") + headers + b"\2"
        header = (60).to_bytes(2, "big") + bytes(2) + (64).to_bytes(8, "big") + properties
        exchange = b"\0\0" + short_string("later") + short_string("x-delayed-message") + b"\2"
        kind = short_string("x-delayed-type") + b"S" + (6).to_bytes(4, "big") + b"fanout"
        client.call(40, 10, exchange + len(kind).to_bytes(4, "big") + kind, 11)
        publish = method(1, 60, 40, b"\0\0" + short_string("later") + short_string("k") + b"\0")
        one = publish + frame(2, 1, header) + frame(3, 1, bytes(64))
        for _ in range(count // 1000):
            client.socket.sendall(one * 1000)
        client.close()
        wait_until_idle(gateway.pid, 60)
        path = f"/v1/vhosts/{quote('/', '')}/delayed?max=100"
        port = gateway.ports["http"]
        compared(
            "the delayed list each second", gateway, rounds, seconds, within_10_ms, each_second, port, path
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--delayed", type=int, default=1_000_000)
    parser.add_argument("--messages", type=int, default=10_000_000, help="to search")
    parser.add_argument("--pages", type=int, default=20, help="open in a browser")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of a round, with and without (default 10)"
    )
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--case", choices=_CASES, help="only this one")
    chosen = parser.parse_args(arguments)
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=Path.cwd() / "build", prefix="bench-console-") as name:
        folder, rounds, seconds = Path(name), chosen.rounds, chosen.seconds
        cases: dict[str, Callable[[], None]] = {
            "idle": lambda: idle(folder, chosen.queues, chosen.idle_seconds),
            "pages": lambda: pages(folder, chosen.queues, rounds, seconds),
            "stalls": lambda: console_stalls.stalls(
                SETTINGS, chosen.queues, rounds, ORDERS, lambda port, *asked: Api(port).send(*asked)
            ),
            "search": lambda: search(folder, chosen.messages, rounds, seconds),
            "first": lambda: console_pages.first(folder, SETTINGS, chosen.queues, rounds),
            "watched": lambda: console_pages.watched(
                folder, SETTINGS, chosen.queues, chosen.pages, rounds, seconds
            ),
            "find": lambda: console_find.find(folder, SETTINGS, chosen.messages, search_once),
            "delayed": lambda: delayed(folder, chosen.delayed, rounds, seconds),
        }
        for case, run in cases.items():
            if chosen.case in (None, case):
                run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
