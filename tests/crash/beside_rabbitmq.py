"""The command line of a program that kills RabbitMQ and a gateway in turn, while a link moves messages."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from tests.support.brokers import Broker, BrokerFailed, Gateway, RabbitMQ

__all__ = ["command", "kill"]

_START_S: Final = 120.0
_STARTS: Final = 5
"""Of a RabbitMQ that was killed: 3.10 may hang while it recovers a queue."""


class Report(Protocol):
    """The result; printed at the end."""

    @property
    def ok(self) -> bool:
        """Whether every promise held."""


def kill(broker: Broker) -> None:
    """Kill a broker, and start it again."""
    broker.kill9()
    for _ in range(_STARTS - 1):
        try:
            broker.start()
        except BrokerFailed as error:
            if not isinstance(broker, RabbitMQ):
                raise
            print(
                f"RabbitMQ did not start, and is killed once more: {str(error).splitlines()[0]}", flush=True
            )
        else:
            return
    broker.start()


def command(
    name: str,
    run: Callable[..., Report],
    *,
    settings: Mapping[str, str],
    messages: int,
    plugins: tuple[str, ...] = (),
    protocols: tuple[str, ...] = (),
) -> int:
    """Run `run(rabbitmq, gateway, messages=, kills=, seed=)` with the options given; the exit code.

    Args:
        name: Of the module in tests.crash.
        run: The program.
        settings: Of the gateway.
        messages: The default of --messages.
        plugins: Of RabbitMQ.
        protocols: Those of which --protocol chooses one, by default the first; `run` gets `protocol=`, too.

    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{name}")
    parser.add_argument("--messages", type=int, default=messages)
    parser.add_argument("--kills", type=int, default=20, help="of RabbitMQ and the gateway in turn")
    parser.add_argument("--seed", type=int, default=1)
    if protocols:
        parser.add_argument("--protocol", choices=protocols, default=protocols[0])
    options = parser.parse_args()
    chosen = {"protocol": options.protocol} if protocols else {}
    with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-") as place:
        folder = Path(place)
        with (
            RabbitMQ(folder / "rabbitmq", plugins=plugins) as rabbitmq,
            Gateway(folder / "gateway", settings=settings) as gateway,
        ):
            rabbitmq.start_timeout_s = _START_S
            # The port of the management API stays over a restart.
            gateway.settings["management.listen"] = f"127.0.0.1:{gateway.ports['management']}"
            report = run(
                rabbitmq,
                gateway,
                messages=options.messages,
                kills=options.kills,
                seed=options.seed,
                **chosen,
            )
            if not report.ok:
                print(gateway.log_tail(100))
    print(report)
    print("PASS" if report.ok else "FAIL")
    return 0 if report.ok else 1
