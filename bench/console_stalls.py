"""How long a request of the console holds the event loop: `python -m bench.console --case stalls`.

A gateway in this process has --queues queues, of which a hundredth has messages. The requests of the
console's pages are made, and each step of a handler, from one wait to the next, is measured in CPU time of
the loop's thread. So other work on the machine hardly changes the figures. Printed are the CPU of a request,
and the least over --rounds of its longest step: that long nobody's message moves.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Coroutine, Generator
from statistics import median
from typing import Any
from unittest import mock

from bench.load_amqp import Client
from bench.publish_latency import bulk, declare
from penstock.protocols.http.server.endpoint import HttpConnection
from penstock.testing import Gateway

_SAMPLES = "&msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5"
_PLACES = (
    *(f"/api/overview?{_SAMPLES}", "/api/nodes", "/api/vhosts", "/api/exchanges?page=1"),
    *("/api/bindings/%2F?page=1", "/api/exchanges/%2F/amq.topic/bindings/source"),
    *("/api/queues?page=3&name=99", "/api/queues?page=900&sort=name&sort_reverse=true"),
    *(f"/api/queues/%2F/queue-000000?{_SAMPLES}", "/api/connections?page=1", "/api/policies"),
    *("/v1/vhosts/%2F/streams", "/api/producers/%2F", "/api/queues/%2F?columns=name,messages"),
)
_RULE = {"pattern": "", "definition": {"dead-letter-exchange": "", "dead-letter-routing-key": "queue-000000"}}
_TO_THEMSELVES = {"pattern": "", "definition": {"dead-letter-exchange": ""}}
_WITH_RULE = ("/api/dead-letters/%2F?page=1", "/api/queues?page=1&sort=policy")
"""Asked for when all queues have a dead-letter exchange by a policy, to one of them or to each itself."""
Send = Callable[[int, str, str, object], object]
"""Sends a method, a path and a body to the management listener's port."""


class _Stepped:
    """A coroutine whose steps are measured."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], steps: list[float]) -> None:
        self._coroutine = coroutine
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        waits = self._coroutine.__await__()
        while True:
            began = time.thread_time()
            try:
                value = next(waits)
            except StopIteration as end:
                return end.value
            finally:
                self._steps.append(time.thread_time() - began)
            yield value


def stalls(settings: dict[str, str], queues: int, rounds: int, orders: tuple[str, ...], send: Send) -> None:
    """Measure and print."""
    steps: list[float] = []
    answer = HttpConnection._answer

    async def measured(*given: Any) -> Any:
        return await _Stepped(answer(*given), steps)

    with mock.patch.object(HttpConnection, "_answer", measured), Gateway(settings=settings) as gateway:
        port = int(gateway.amqp_url.rpartition(":")[2].strip("/"))
        declare(port, [f"queue-{number:06}" for number in range(queues)])
        client, rng = Client(port), random.Random(23)
        for number in rng.sample(range(queues), max(queues // 100, 1)):
            client.socket.sendall(bulk(f"queue-{number:06}", rng.randrange(1, 5)))
        client.close()
        gc.collect()
        gc.freeze()  # as a gateway does that was started with its queues
        gc.set_threshold(50_000, 50, 100)
        management = gateway.listener("management")
        sorted_ = [f"/api/queues?page=3&page_size=100&sort={one}&sort_reverse=true" for one in orders]
        without_rule = len(sorted_) + len(_PLACES)
        rules = {without_rule: _RULE, without_rule + len(_WITH_RULE): _TO_THEMSELVES}
        for number, path in enumerate((*sorted_, *_PLACES, *_WITH_RULE, _WITH_RULE[0])):
            if number in rules:
                send(management, "PUT", "/api/policies/%2F/dead", rules[number])
            send(management, "GET", path, None)
            longest, whole = [], []
            for _ in range(rounds):
                steps.clear()
                send(management, "GET", path, None)
                longest.append(max(steps))
                whole.append(sum(steps))
            print(
                f"{path.partition('&msg')[0]:78} {median(whole) * 1e3:8.1f} ms of CPU, "
                f"longest step {min(longest) * 1e3:6.2f} ms",
                flush=True,
            )
