"""The composition root: one log, one broker, the front ends; started, served, stopped in order.

The only module that knows every part. Start: open the log (recovery), the tick, the broker, then the
listeners, then say "ready". Stop (SIGTERM, SIGINT): stop accepting, say goodbye to every connection in its
protocol's words, write what cursors know, close the log with its marker of a clean stop. A log that can no
longer write ends the process with exit code 1: nothing that it could not keep is ever confirmed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from penstock import logs
from penstock.collector import uncollected
from penstock.config import Amqp, Config
from penstock.errors import ConfigError
from penstock.gateway.layer_options import (
    backlog_quotas,
    gateway_name,
    http_options,
    layer_options,
    log_options,
    memory_limit,
    memory_share,
    oauth_verifier,
)
from penstock.gateway.ready_message import ready_line, serves_at
from penstock.gateway.reloading import LIMITS, Reloader
from penstock.gateway.start_times import StartTimes
from penstock.gateway.watches import keep_lease, watch_files, watch_memory
from penstock.lazy_dataclass import compile_all, dataclass
from penstock.log_core.batch._batch import EVENTS
from penstock.log_core.log import Log
from penstock.log_core.maintenance.retention import Retention
from penstock.log_core.replication.position import forget_journal
from penstock.log_core.wal._committer import Committer
from penstock.memory import MemoryAlarm, give_back, keep_large_blocks, return_large_blocks
from penstock.protocols.amqp import endpoint as amqp
from penstock.protocols.amqp.codec.errors import answer
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties, headers_of
from penstock.protocols.amqp.messages import dead_letters
from penstock.protocols.amqp10.options import Options as Amqp10Options
from penstock.protocols.headers import delay
from penstock.protocols.http import serve as http
from penstock.protocols.http.management.definitions.loading import Import, load_file, load_parts
from penstock.protocols.http.server.app import ErrorTexts
from penstock.protocols.links.links import Links
from penstock.protocols.listening.front_end import FrontEnd, all_done
from penstock.protocols.listening.registry import Registry
from penstock.protocols.mqtt import endpoint as mqtt
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.native import endpoint as native
from penstock.protocols.native.options import NativeOptions
from penstock.protocols.net._poller import poller_of
from penstock.protocols.net.admitting.admission import Admission
from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.process_context import ProcessContext
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.protocols.tls.contexts import Tls, TlsOptions
from penstock.router.audit import AuditOptions
from penstock.router.authentication.users import AuthOptions
from penstock.router.broker import Broker, BrokerOptions
from penstock.service_manager import ServiceManager
from penstock.subscriptions.cursor import _events as events
from penstock.subscriptions.tick.tick import Loop, Tick
from penstock.workers.peers import Membership, Peers, Stopped

__all__ = ["Parts", "open_log", "open_tls", "running", "serve", "work"]

if TYPE_CHECKING:
    from penstock.cluster.replica import Replica
    from penstock.log_core.batch._batch import Record
    from penstock.protocols.listening.speaker import Speaker, SpokenConnection
    from penstock.telemetry.exporter import Exporter

logger = logging.getLogger("penstock.server")


_FAILED_S: Final = 1.0
"""A gateway whose log has failed ends within this time, with status 1."""
_FAILED_DRAIN_S: Final = 0.1
_LINES_WITHIN_S: Final = 0.005
"""Lines of events wait so long for others, so that clients which come one by one share a write."""
_HANDOVER_DRAIN_S: Final = 0.2
"""An owner waits no longer for clients that do not take their leave: nobody serves until it has ended."""


def serve(config: Config, load: Callable[[], Config] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; on SIGHUP `load` reads the configuration again (`reloading`).

    Prints one line on standard output when clients can connect:
    `ready amqp=HOST:PORT mqtt=HOST:PORT data=DIR` (only the listeners that are on; the others are amqps,
    amqp_ws, amqp_wss, mqtts, ws and wss).

    Returns:
        0 after a clean stop, 1 when the log failed while serving.

    Raises:
        ConfigError: a file of the section tls cannot be used.
        StartError: a port is taken, the data folder is locked, damaged or unusable, the disk is full.

    """
    # From the first moment on: the default would end a gateway that is still starting.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if config.log.engine == "kafka":
        return _serve_node(config, load)
    if config.server.workers > 1:
        from penstock.workers.supervisor import supervise

        return supervise(config, partial(work, load=load), ready_line, serves_at)
    return work(config, load=load)


def _amqp10_speaker(
    broker: Broker, front_ends: Mapping[str, FrontEnd], config: Amqp
) -> Callable[[SpokenConnection], Speaker[Any]]:
    """A function that makes a connection speak AMQP 1.0."""

    def speak(connection: SpokenConnection) -> Speaker[Any]:
        # Here: its 38 modules are 6 % of a start, and few clients speak it.
        from penstock.protocols.amqp10.endpoint import Amqp10

        now = front_ends["amqp"].options
        options = Amqp10Options(
            address_v1=config.address_v1,
            scram=config.scram,
            frame_max=now.frame_max,
            channel_max=now.channel_max,
            heartbeat_s=now.heartbeat_s,
            max_message_bytes=now.max_message_bytes,
            allow_anonymous=now.allow_anonymous,
        )
        return Amqp10(connection, broker, options)

    return speak


def _annotated(record: Record, note: bytes) -> Record:
    """The record with the annotations that consumers of AMQP 1.0 left on it."""
    from penstock.protocols.amqp10.messages.annotating import annotated  # as above

    return annotated(record, note)


def _telemetry(config: Config, broker: Broker, name: str) -> Exporter | None:
    """The exporter of traces and metrics, if the configuration has a collector."""
    if not config.telemetry.endpoint:
        return None
    # Here: OpenTelemetry loads hundreds of modules, and few gateways have a collector.
    from penstock.telemetry.exporter import Exporter

    instance = f"{name}/{broker.options.worker}" if config.server.workers > 1 else name
    return Exporter(config.telemetry, broker, instance)


def _allow_open_files() -> None:
    """Raise the soft limit: the usual 1024 is for programs that use select(); each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _serve_node(config: Config, load: Callable[[], Config] | None) -> int:
    # Here, since one machine alone needs none of it.
    from penstock.cluster.node import run_node
    from penstock.cluster.supervisor import child_pipe

    _allow_open_files()
    keep_large_blocks()
    # A standby has time for both. An owner that starts compiles nothing then, and walks only what is new.
    compile_all()
    gc.collect()
    gc.freeze()
    return run_node(config, lambda replica: work(config, load=load, replica=replica), child_pipe())


def work(
    config: Config,
    membership: Membership | None = None,
    *,
    load: Callable[[], Config] | None = None,
    replica: Replica | None = None,
) -> int:
    """Serve as the only process, as one of several workers, or as the owner of a cluster; as `serve`.

    A worker says the line of `ready` to its supervisor, by `membership`.
    """
    _allow_open_files()
    return_large_blocks()
    times = StartTimes()
    tls = open_tls(config)
    log = open_log(config, replica=replica)
    times.ended("log")
    try:
        # Until `_serve` has frozen what a start makes: a collection before that would walk all of it once.
        with uncollected(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, log, tls, membership, load, times, replica))
    except Stopped:
        return 0
    except OSError:
        logger.exception("the gateway failed")
        raise
    finally:
        log.close_sync()
        faulthandler.cancel_dump_traceback_later()


def open_tls(config: Config) -> Tls | None:
    """The certificates, None without any. Raises ConfigError: a file cannot be used."""
    return Tls(layer_options(TlsOptions, config.tls)) if config.tls.cert_file else None


def open_log(
    config: Config, clock: Callable[[], float] = time.time, *, replica: Replica | None = None
) -> Log:
    """The log of the configuration's folder, recovered; `clock` gives seconds since the epoch.

    With `replica`, its journal keeps what is written.

    Raises:
        StartError: the data folder is locked, damaged or unusable, the disk is full.

    """
    log = Log.open(
        Path(config.log.data_dir),
        log_options(config),
        clock=clock,
        files=None if replica is None else replica.files,
        committer=Committer if replica is None else replica.committer,
        holds_back=replica is not None,
    )
    # Once it is locked: the node may still run.
    if replica is None and forget_journal(Path(config.log.data_dir)):
        logger.warning("the data folder was a node's of a cluster: from now on it is this gateway's alone")
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
    return log


@dataclass(frozen=True, slots=True)
class Parts:
    """A gateway that serves: what goes on in its loop, and its listeners."""

    tick: Tick
    front_ends: dict[str, FrontEnd]
    broker: Broker
    admission: Admission
    memory: MemoryAlarm

    def change_limits(self, config: Config) -> None:
        """Put the limits of connections, memory and retention in force, for what comes from now on."""
        server = config.server
        self.admission.change(
            server.proxy_networks, server.max_connections_per_address, server.accept_rate_per_address
        )
        for front_end in self.front_ends.values():
            front_end.change_max(server.max_connections)
        for name, front_end in self.front_ends.items():
            options = [limit.partition(".")[2] for limit in LIMITS if limit.startswith(f"{name}.")]
            if options:
                section = getattr(config, name)
                front_end.change_options(**{option: getattr(section, option) for option in options})
        self.memory.change(memory_limit(config))
        _retain(self.broker.log, config)
        _coalesce(config)


def _retain(log: Log, config: Config) -> None:
    """Have the log keep as much traffic as the configuration says."""
    log.usual_retention = Retention(config.log.traffic_retention_bytes, config.log.traffic_retention_s)
    log.retain_traffic(EVENTS, config.events.retention_bytes, config.events.retention_s)


def _coalesce(config: Config) -> None:
    """Have the sockets of this loop wait for each other as the configuration says."""
    poller_of(asyncio.get_running_loop()).moderation.span_ns = config.server.coalesce_us * 1000


@asynccontextmanager
async def running(
    config: Config,
    log: Log,
    tls: Tls | None,
    membership: Membership | None = None,
    *,
    timers: Loop | None = None,
    times: StartTimes | None = None,
    replica: Replica | None = None,
) -> AsyncIterator[Parts]:
    """A gateway over an open log; what it says goodbye with, and writes, comes when the block ends.

    `timers`: what its times are by, besides those of connections; None: the event loop. `times` gets the
    phases of the start. `replica`: by which this gateway owns the log of a cluster.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
        StartError: a port is taken.

    """
    loop = asyncio.get_running_loop()
    tick = Tick(log, timers or loop)
    log.attach(loop.call_soon_threadsafe, loop)
    _coalesce(config)
    if membership is None and config.server.workers > 1:
        raise ConfigError("several workers need a supervisor; `penstock serve` has one", key="server.workers")
    _retain(log, config)
    log.on_backpressure.append(events.hold)
    events.start(config.events.kinds, tick.write_soon)
    peers = None if membership is None else await Peers.join(membership, log)
    options = BrokerOptions(
        auth=layer_options(AuthOptions, config.auth),
        backlog_quotas=backlog_quotas(config),
        audit=layer_options(AuditOptions, config.audit),
        node=gateway_name(config, None) if replica is None else replica.name,
        worker=0 if peers is None else peers.number,
        workers=config.server.workers,
    )
    is_new = not log.tables.keys("vhost")
    broker = Broker.open(
        log,
        tick,
        options,
        rewrite=dead_letters.rewrite,
        delay_words=delay.WORDS,
        shared=None if peers is None else peers.shared,
        oauth=oauth_verifier(config),
    )
    times = times or StartTimes()
    times.ended("queues")
    give_back()  # what a start takes for a moment, while all rows are read
    shared = ProcessContext(
        tls=tls,
        admission=Admission(
            proxy_networks=config.server.proxy_networks,
            max_per_address=config.server.max_connections_per_address,
            rate_per_address=config.server.accept_rate_per_address,
        ),
        buffers=Buffers(
            memory_share(config.server.buffer_budget) // config.server.workers,
            config.server.output_buffer_bytes,
        ),
        host_names=frozenset(name.lower() for name in config.server.host_names),
        handover=None if peers is None else peers.handover,
        open_sockets={} if replica is None else replica.open_sockets,
        name=gateway_name(config, replica),
    )
    broker.headers_of = headers_of
    broker.annotated = _annotated
    registry = Registry()
    registry.memory = memory = watch_memory(config, log, tick)
    front_ends = registry.front_ends
    links = Links(
        broker,
        registry,
        max_links=config.links.max_links,
        bridges=config.links.bridges,
        receive_maximum=config.mqtt.receive_maximum,
        cluster=gateway_name(config, replica),
    )
    importing: Import | None = None
    telemetry: Exporter | None = None
    try:
        if config.management.load_definitions:
            default_user = config.auth.default_user if is_new else ""
            importing = await load_file(
                broker, WORDS, config.management.load_definitions, default_user=default_user
            )
        if peers is not None:
            peers.follow(broker)
        server, mqtt_options = config.server, layer_options(MqttOptions, config.mqtt)
        newer = _amqp10_speaker(broker, front_ends, config.amqp)
        front_ends["amqp"] = await amqp.serve(broker, config.amqp, server, loop, shared, newer)
        front_ends["mqtt"] = await mqtt.serve(broker, mqtt_options, server, loop, shared)
        native_options = layer_options(NativeOptions, config.native)
        front_ends["native"] = await native.serve(broker, native_options, server, loop, shared)
        telemetry = _telemetry(config, broker, shared.name)
        web = http_options(config, log, replica, telemetry)
        front_ends["http"] = http.serve(
            broker,
            registry,
            WORDS,
            web,
            server,
            loop,
            shared,
            leader=None if peers is None else peers.leader,
            links=links,
        )
        if importing is not None:
            await load_parts(importing, config.management.load_definitions, registry.definitions())
        if peers is not None:
            peers.serve(front_ends)
        links.start()
        if telemetry is not None:
            telemetry.serve()
        times.ended("listeners")
        with logs.gathered(partial(loop.call_later, _LINES_WITHIN_S)):
            yield Parts(tick, front_ends, broker, shared.admission, memory)
    finally:
        drain_s = config.server.drain_timeout_s
        if log.failed is not None:
            drain_s = _FAILED_DRAIN_S  # nothing under way can be confirmed any more
        elif replica is not None:
            drain_s = min(drain_s, _HANDOVER_DRAIN_S)
        # From the last to the first; one that fails keeps none of the others from being done.
        async with AsyncExitStack() as steps:
            steps.callback(tick.close)
            steps.callback(events.stop)
            steps.callback(tick.run)
            steps.callback(broker.close)
            if telemetry is not None and log.failed is None:
                steps.push_async_callback(telemetry.close)
            steps.push_async_callback(all_done, *(partial(one.drain, drain_s) for one in front_ends.values()))
            for front_end in front_ends.values():
                steps.callback(front_end.stop_accepting)
            steps.push_async_callback(links.stop)
            if peers is not None:
                steps.callback(peers.close)


async def _serve(
    config: Config,
    log: Log,
    tls: Tls | None,
    membership: Membership | None,
    load: Callable[[], Config] | None,
    times: StartTimes,
    replica: Replica | None,
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event() if membership is None else membership.stopping

    def on_failed() -> None:
        # A thread in C that needs no lock of Python's: the process ends in time whatever the loop is doing.
        faulthandler.dump_traceback_later(_FAILED_S, exit=True)
        stopping.set()

    log.on_failed.append(on_failed)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if membership is not None:
        membership.watch(loop)
    async with running(config, log, tls, membership, times=times, replica=replica) as parts:
        if tls is not None:
            watch_files(tls, parts.tick)
        reloader = Reloader(
            config if membership is None or load is None else load(),
            load or (lambda: config),
            parts.broker,
            tls,
            limits=parts.change_limits,
            owns_users=membership is None or membership.number == 0,
        )
        loop.add_signal_handler(signal.SIGHUP, reloader.reload)
        if replica is not None:
            keep_lease(replica, log, parts.tick)
        # All that exists now stays: the collector need not walk it again. Of 48,000 objects 25 are garbage,
        # behind a recovery, too: to look for them would be 5 % of the start. Messages allocate nothing that
        # it would find, so it runs seldom; a full collection in mid-traffic would be felt in the latency.
        gc.freeze()
        gc.set_threshold(50_000, 50, 100)
        gc.enable()
        started = time.perf_counter()
        front_ends = parts.front_ends.values()
        addresses = {
            name: address for front_end in front_ends for name, address in front_end.addresses.items()
        }
        manager: ServiceManager | None = None
        if membership is None:
            print(ready_line(addresses, config), flush=True)
            manager = ServiceManager()
            manager.ready(serves_at(addresses))
            if manager.alive_every_s:
                parts.tick.every(manager.alive_every_s, manager.alive)
        else:
            membership.ready(addresses)
        logger.info(
            "ready", extra=logs.fields(**addresses, cpu_s=round(time.process_time(), 2), **times.fields())
        )
        await stopping.wait()
        if replica is not None:
            await replica.announce_end()
            replica.stopping()
        if manager is not None:
            manager.stopping()
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        await reloader.close()
        logger.info("stopping", extra=logs.fields(served_s=round(time.perf_counter() - started, 1)))
    if log.failed is not None:
        logger.error("the log failed: %s", log.failed)
        return 1
    return 0


WORDS = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
"""The functions by which the HTTP front end uses AMQP's words."""
