"""The composition root: one log, one broker, the front ends; started, served, stopped in order.

The only module that knows every part. Start: open the log (recovery), the tick, the broker, then the
listeners, then say "ready". Stop (SIGTERM, SIGINT): stop accepting, say goodbye to every connection in its
protocol's words, write what cursors know, close the log with its marker of a clean stop. A log that can no
longer write ends the process with exit code 1: nothing that it could not keep is ever confirmed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import time
from dataclasses import fields as option_fields
from pathlib import Path
from typing import Any, Protocol

import uvloop

from penstock import logs
from penstock.config import Config
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.protocols.amqp import dead_letters
from penstock.protocols.amqp import endpoint as amqp
from penstock.protocols.mqtt import endpoint as mqtt
from penstock.protocols.mqtt.options import MqttOptions
from penstock.router.auth import AuthOptions
from penstock.router.broker import Broker, BrokerOptions
from penstock.subscriptions.tick import Tick

__all__ = ["serve"]

logger = logging.getLogger("penstock.server")


class Front(Protocol):
    """What the composition root needs of a front end's listener."""

    @property
    def address(self) -> str: ...
    def stop_accepting(self) -> None: ...
    async def drain(self, timeout: float) -> None: ...


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT.

    Prints one line on standard output when clients can connect:
    `ready amqp=HOST:PORT mqtt=HOST:PORT data=DIR` (only the listeners that are on).

    Returns:
        0 after a clean stop, 1 when the log failed while serving.

    Raises:
        StartError: a port is taken, the data folder is locked, damaged or unusable, the disk is full.

    """
    log = Log.open(Path(config.log.data_dir), _options(LogOptions, config.log))
    recovery = log.recovery
    logger.info(
        "log opened",
        extra=logs.fields(
            data=config.log.data_dir,
            clean=recovery.clean,
            records=recovery.records,
            bytes=recovery.bytes,
            truncated_bytes=recovery.truncated_bytes,
            seconds=round(recovery.seconds, 3),
        ),
    )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, log))
    finally:
        log.close_sync()


async def _serve(config: Config, log: Log) -> int:
    loop = asyncio.get_running_loop()
    tick = Tick(log, loop)
    log.attach(loop.call_soon_threadsafe)
    stopping = asyncio.Event()

    def on_pressure(paused: bool) -> None:
        if log.failed is not None:
            stopping.set()

    log.on_pressure.append(on_pressure)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    options = BrokerOptions(auth=_options(AuthOptions, config.auth))
    broker = Broker.open(log, tick, options, rewrite=dead_letters.rewrite)
    fronts: dict[str, Front] = {}
    try:
        if config.amqp.listen:
            fronts["amqp"] = await amqp.serve(broker, config.amqp, config.server, loop)
        if config.mqtt.listen:
            fronts["mqtt"] = await mqtt.serve(broker, _options(MqttOptions, config.mqtt), config.server, loop)
        # What stands now stays: the collector need not walk it again. Per message nothing is allocated that
        # it would find, so it runs seldom; a full collection in mid-traffic would be felt in the latency.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        started = time.perf_counter()
        addresses = " ".join(f"{name}={front.address}" for name, front in fronts.items())
        print(f"ready {addresses} data={Path(config.log.data_dir).absolute()}", flush=True)
        logger.info("ready", extra=logs.fields(**{name: front.address for name, front in fronts.items()}))
        await stopping.wait()
        logger.info("stopping", extra=logs.fields(served_s=round(time.perf_counter() - started, 1)))
    finally:
        for front in fronts.values():
            front.stop_accepting()
        for front in fronts.values():
            await front.drain(config.server.drain_timeout_s)
        broker.close()
        tick.run()
        tick.close()
    if log.failed is not None:
        logger.error("the log failed: %s", log.failed)
        return 1
    return 0


def _options(kind: type[Any], section: object) -> Any:
    """The options class of a layer, filled from the section of the configuration with the same keys."""
    return kind(**{option.name: getattr(section, option.name) for option in option_fields(kind)})
