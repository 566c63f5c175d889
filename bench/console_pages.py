"""Pages of the console: how soon they are there, and what they cost: `python -m bench.console`.

--case first     A gateway with --queues queues; a browser that has nothing yet opens the list of queues.
                 Printed are the time until the first rows are seen and the bytes that were sent until
                 then, medians over --rounds.

--case watched   Two gateways with --queues queues each; the history of one is off
                 (`management.history_bytes` = 0). A client publishes to a queue of either as fast as it is
                 taken, another one consumes. Rounds take turns: with the history and --pages pages open in
                 Chromium (overviews, lists in the order of a rate, and a queue), without either, and without
                 either while the same pages are open at the other gateway. The last one has the browser's
                 share of cores and caches, and none of the gateway's work for it, so the ratio to it is the
                 gateway's own.
                 Printed is how many messages a second of the gateway's CPU moves; and what the pages cost
                 a gateway to which nobody publishes, per second. On a machine that other work keeps busy
                 only the second figure means much: the gateway then has less than a core, and the pages'
                 share of it grows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from statistics import median

from playwright.sync_api import Response

from bench.cpu import cpu_seconds, wait_until_idle
from bench.load_amqp import UNBLOCKED, Client
from bench.publish_latency import beside, bulk, declare
from tests.support.brokers import Gateway
from tests.support.browser import chromium
from tests.support.console import sign_in

_QUEUE = "busy"
_CHUNK = 64
_PLACES = (
    "overview",
    "queues?sort=message_stats.publish_details.rate&sort_reverse=true",
    "overview",
    f"queues/%2F/{_QUEUE}",
)


def watched(
    folder: Path, settings: dict[str, str], queues: int, pages: int, rounds: int, seconds: float
) -> None:
    """Measure and print."""
    names = [_QUEUE, *(f"queue-{number:06}" for number in range(queues))]
    off = {**settings, "management.history_bytes": "0"}
    with Gateway(folder / "off", settings=off) as without, Gateway(folder / "on", settings=settings) as with_:
        for gateway in (without, with_):
            declare(gateway.amqp_port, names)
            wait_until_idle(gateway.pid, 120)
        cost = _idle(with_, pages, seconds) - _idle(without, 0, seconds)
        # The gateway that is measured, and the one that the pages look at.
        ways = {
            "history off, no page": (without, None),
            "history off, pages at another gateway": (without, with_),
            f"history on, {pages} pages open": (with_, with_),
        }
        found: dict[str, list[float]] = {label: [] for label in ways}
        for _ in range(rounds):
            for label, (gateway, looked_at) in ways.items():
                found[label].append(_per_cpu_second(gateway, looked_at, pages, seconds))
    for label, figures in found.items():
        print(f"{label:44} {median(figures):12,.0f} messages per CPU second", flush=True)
    alone, elsewhere, on = map(median, found.values())
    print(f"{'the history and the pages, without traffic':44} {1000 * cost:12.1f} ms of CPU per second")
    print(f"{'with them, of without':44} {on / alone:12.3f}")
    print(f"{'with them, of pages at another gateway':44} {on / elsewhere:12.3f}", flush=True)


def first(folder: Path, settings: dict[str, str], queues: int, rounds: int) -> None:
    """Measure and print."""
    took: list[float] = []
    sent: list[int] = []
    with Gateway(folder / "first", settings=settings) as gateway, chromium() as browser:
        declare(gateway.amqp_port, [f"queue-{number:06}" for number in range(queues)])
        wait_until_idle(gateway.pid, 120)
        base = f"http://127.0.0.1:{gateway.ports['management']}"
        for _ in range(rounds + 1):
            context = browser.new_context(base_url=base)
            page = context.new_page()
            sign_in(page)
            fresh = browser.new_context(base_url=base, storage_state=context.storage_state())
            context.close()
            page = fresh.new_page()
            bytes_: list[int] = []
            page.on("response", partial(_add_size, bytes_))
            began = time.perf_counter()
            page.goto("/#/queues", wait_until="commit")
            page.get_by_role("region", name="Queues").locator("tbody tr").first.wait_for()
            took.append(time.perf_counter() - began)
            page.wait_for_load_state("networkidle")
            sent.append(sum(bytes_))
            fresh.close()
    # The first one is the browser's own start.
    print(f"{f'first rows of {queues:,} queues':44} {median(took[1:]) * 1e3:12,.0f} ms")
    print(f"{'sent until then':44} {median(sent[1:]) / 1000:12,.1f} KB", flush=True)


def _add_size(sizes: list[int], response: Response) -> None:
    sizes.append(int(response.headers.get("content-length", 0)))


def _idle(gateway: Gateway, pages: int, seconds: float) -> float:
    """CPU seconds of each second."""
    with _open(gateway, pages):
        time.sleep(2)
        before, began = cpu_seconds(gateway.pid), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(gateway.pid) - before) / (time.monotonic() - began)


def _per_cpu_second(gateway: Gateway, looked_at: Gateway | None, pages: int, seconds: float) -> float:
    port = gateway.amqp_port
    looking = nullcontext() if looked_at is None else _open(looked_at, pages)
    with beside((_publishing, port), (_consuming, port)) as (published, _), looking:
        time.sleep(2)  # the pages are drawn, and what follows is even
        before, count = cpu_seconds(gateway.pid), published.value
        time.sleep(seconds)
        return (published.value - count) / (cpu_seconds(gateway.pid) - before)


@contextmanager
def _open(gateway: Gateway, pages: int) -> Iterator[None]:
    """Pages that are looked at, for a browser hides none of them."""
    if not pages:
        yield
        return
    with chromium() as browser:
        context = browser.new_context(base_url=f"http://127.0.0.1:{gateway.ports['management']}")
        first = context.new_page()
        sign_in(first)
        opened = [first, *(context.new_page() for _ in range(pages - 1))]
        for number, page in enumerate(opened):
            page.goto(f"/#/{_PLACES[number % len(_PLACES)]}")
            page.get_by_role("heading", level=1).wait_for()
        yield
        context.close()


def _publishing(port: int, running: Synchronized[int], moved: Synchronized[int]) -> None:
    client, chunk = Client(port, capabilities=UNBLOCKED), bulk(_QUEUE, _CHUNK)
    client.socket.settimeout(60)
    while running.value:
        client.socket.sendall(chunk)
        moved.value += _CHUNK
    client.close()


def _consuming(port: int, running: Synchronized[int], moved: Synchronized[int]) -> None:
    client = Client(port)
    client.consume(_QUEUE, no_ack=True)
    client.socket.settimeout(60)
    while running.value:
        moved.value += len(client.socket.recv(1 << 20))
    client.close()
