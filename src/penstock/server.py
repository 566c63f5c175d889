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
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from dataclasses import fields as option_fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from penstock import logs
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.log_core.batch._batch import EVENTS
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.replication.position import forget_journal
from penstock.log_core.wal._committer import Committer
from penstock.memory import SAMPLE_S, MemoryAlarm, available_bytes, give_back, return_large_blocks
from penstock.protocols.amqp import endpoint as amqp
from penstock.protocols.amqp.codec.errors import answer
from penstock.protocols.amqp.codec.properties import decode_properties, encode_properties, headers_of
from penstock.protocols.amqp.messages import dead_letters, delay
from penstock.protocols.amqp10.options import Options as Amqp10Options
from penstock.protocols.http import serve as http
from penstock.protocols.http.management.definitions.loading import Import, load_file, load_parts
from penstock.protocols.http.server.app import ErrorTexts
from penstock.protocols.http.webhooks.options import WebhookOptions
from penstock.protocols.links.links import Links
from penstock.protocols.listening.front_end import FrontEnd
from penstock.protocols.listening.registry import Registry
from penstock.protocols.mqtt import endpoint as mqtt
from penstock.protocols.mqtt.options import MqttOptions
from penstock.protocols.native import endpoint as native
from penstock.protocols.native.options import NativeOptions
from penstock.protocols.net._poller import poller_of
from penstock.protocols.net.admission import Admission
from penstock.protocols.net.buffers import Buffers
from penstock.protocols.net.process_context import ProcessContext
from penstock.protocols.properties.translate import amqp091_from_mqtt5
from penstock.protocols.tls.contexts import Tls, TlsOptions
from penstock.reloading import Reloader
from penstock.router.audit import AuditOptions
from penstock.router.authentication.users import AuthOptions
from penstock.router.broker import Broker, BrokerOptions
from penstock.router.limits.limits import BACKLOG_BYTES, BACKLOG_EVICT, BACKLOG_REJECT
from penstock.service_manager import ServiceManager
from penstock.start_times import StartTimes
from penstock.subscriptions.cursor import _events as events
from penstock.subscriptions.tick.tick import Loop, Tick
from penstock.workers.crew import Crew, Membership, Stopped
from penstock.workers.supervisor import supervise

__all__ = ["Parts", "open_log", "open_tls", "ready_line", "running", "serve", "work"]

if TYPE_CHECKING:
    from penstock.cluster.replica import Replica
    from penstock.protocols.listening.speaker import Speaker, SpokenConnection
    from penstock.router.authentication.oauth import OAuth

logger = logging.getLogger("penstock.server")

_LISTENERS: Final = {
    "amqp": ("amqp://", "/", "RabbitMQ's clients; guest with password guest on this machine"),
    "amqps": ("amqps://", "/", "RabbitMQ's clients, with TLS"),
    "mqtt": ("mqtt://", "", "MQTT clients; on this machine they need no login"),
    "mqtts": ("mqtts://", "", "MQTT clients, with TLS"),
    "native": ("penstock://", "/", "the Python SDK and other native clients"),
    "natives": ("penstocks://", "/", "native clients, with TLS"),
    "http": ("http://", "/v1/", "publish and pull over HTTP; GET /openapi.json describes it"),
    "management": ("http://", "/", "the console, for a browser; RabbitMQ's management API at /api/"),
    "metrics": ("http://", "/metrics", "Prometheus"),
}
"""Scheme and path of the address of a listener, and what it is for."""
_LOOK_AT_FILES_S: Final = 2.0
"""How often the files of certificates are looked at for changes."""

_LEASE_LOOK_S: Final = 0.1
_FAILED_S: Final = 1.0
"""A gateway whose log has failed ends within this time, with status 1."""
_FAILED_DRAIN_S: Final = 0.1


def serve(config: Config, load: Callable[[], Config] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; on SIGHUP `load` reads the configuration again (`reloading`).

    Prints one line on standard output when clients can connect:
    `ready amqp=HOST:PORT mqtt=HOST:PORT data=DIR` (only the listeners that are on; the others are amqps,
    mqtts, ws and wss).

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
        return supervise(config, partial(work, load=load), ready_line, serves_at)
    return work(config, load=load)


def _amqp10_speaker(broker: Broker, config: Config) -> Callable[[SpokenConnection], Speaker[Any]]:
    """A function that makes a connection speak AMQP 1.0."""
    options = Amqp10Options(
        frame_max=config.amqp.frame_max,
        channel_max=config.amqp.channel_max,
        heartbeat_s=config.amqp.heartbeat_s,
        max_message_bytes=config.amqp.max_message_bytes,
        allow_anonymous=config.amqp.allow_anonymous,
    )

    def speak(connection: SpokenConnection) -> Speaker[Any]:
        # Here: its 38 modules are 6 % of a start, and few clients speak it.
        from penstock.protocols.amqp10.endpoint import Amqp10

        return Amqp10(connection, broker, options)

    return speak


def _allow_open_files() -> None:
    """Raise the soft limit: the usual 1024 is for programs that use select(); each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _serve_node(config: Config, load: Callable[[], Config] | None) -> int:
    # Here, since one machine alone needs none of it.
    from penstock.cluster.node import run_node
    from penstock.cluster.supervisor import child_pipe

    _allow_open_files()
    # A standby has time for it: an owner that starts then walks only what is new.
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
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, log, tls, membership, load, times, replica))
    except Stopped:
        return 0
    finally:
        log.close_sync()
        faulthandler.cancel_dump_traceback_later()


def open_tls(config: Config) -> Tls | None:
    """The certificates, None without any. Raises ConfigError: a file cannot be used."""
    return Tls(_options(TlsOptions, config.tls)) if config.tls.cert_file else None


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
        _log_options(config),
        clock=clock,
        files=None if replica is None else replica.files,
        committer=Committer if replica is None else replica.committer,
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
        """Put the limits of connections and of memory in force, for what comes from now on."""
        server = config.server
        self.admission.change(
            server.proxy_networks, server.max_connections_per_address, server.accept_rate_per_address
        )
        for front_end in self.front_ends.values():
            front_end.change_max(server.max_connections)
        self.memory.change(_memory_limit(config))
        _coalesce(config)


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
    log.retain_traffic(EVENTS, config.events.retention_bytes, config.events.retention_s)
    log.on_backpressure.append(events.hold)
    events.start(config.events.kinds, tick.write_soon)
    crew = None if membership is None else await Crew.join(membership, log)
    options = BrokerOptions(
        auth=_options(AuthOptions, config.auth),
        backlog_quotas=_backlog_quotas(config),
        audit=_options(AuditOptions, config.audit),
        worker=0 if crew is None else crew.number,
        workers=config.server.workers,
    )
    is_new = not log.tables.keys("vhost")
    broker = Broker.open(
        log,
        tick,
        options,
        rewrite=dead_letters.rewrite,
        delay_words=delay.WORDS,
        shared=None if crew is None else crew.shared,
        oauth=_oauth(config),
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
        handover=None if crew is None else crew.handover,
    )
    broker.headers_of = headers_of
    registry = Registry()
    registry.memory = memory = watch_memory(config, log, tick)
    front_ends = registry.front_ends
    links = Links(
        broker,
        registry,
        max_links=config.links.max_links,
        bridges=config.links.bridges,
        receive_maximum=config.mqtt.receive_maximum,
        cluster=_name(config, replica),
    )
    importing: Import | None = None
    try:
        if config.management.load_definitions:
            default_user = config.auth.default_user if is_new else ""
            importing = await load_file(
                broker, WORDS, config.management.load_definitions, default_user=default_user
            )
        if crew is not None:
            crew.follow(broker)
        server, mqtt_options = config.server, _options(MqttOptions, config.mqtt)
        newer = _amqp10_speaker(broker, config)
        front_ends["amqp"] = await amqp.serve(broker, config.amqp, server, loop, shared, newer)
        front_ends["mqtt"] = await mqtt.serve(broker, mqtt_options, server, loop, shared)
        native_options = _options(NativeOptions, config.native)
        front_ends["native"] = await native.serve(broker, native_options, server, loop, shared)
        http_options = _http_options(config, log, replica)
        front_ends["http"] = http.serve(
            broker,
            registry,
            WORDS,
            http_options,
            server,
            loop,
            shared,
            leader=None if crew is None else crew.leader,
            links=links,
        )
        if importing is not None:
            await load_parts(importing, config.management.load_definitions, registry.definitions())
        if crew is not None:
            crew.serve(front_ends)
        links.start()
        times.ended("listeners")
        yield Parts(tick, front_ends, broker, shared.admission, memory)
    finally:
        if crew is not None:
            crew.close()
        await links.stop()
        for front_end in front_ends.values():
            front_end.stop_accepting()
        for front_end in front_ends.values():
            # Nothing under way can be confirmed any more.
            await front_end.drain(config.server.drain_timeout_s if log.failed is None else _FAILED_DRAIN_S)
        broker.close()
        tick.run()
        events.stop()
        tick.close()


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


def ready_line(addresses: Mapping[str, str], config: Config) -> str:
    """The text that is printed when clients can connect: the line of `ready`, and for a person one line
    before it for each listener."""
    words = " ".join(f"{name}={address}" for name, address in addresses.items())
    line = f"ready {words} data={Path(config.log.data_dir).absolute()}"
    return "\n".join((*listener_lines(addresses), line)) if sys.stdout.isatty() else line


def serves_at(addresses: Mapping[str, str]) -> str:
    """The status that the service manager shows while the gateway serves."""
    return "serves " + ", ".join(f"{name} at {address}" for name, address in addresses.items())


def listener_lines(addresses: Mapping[str, str]) -> list[str]:
    """The purpose of each listener, with the address that its clients need."""
    lines = []
    for name, address in addresses.items():
        scheme, path, text = _LISTENERS.get(name, ("", "", ""))
        lines.append(f"  {name:<12}{scheme + address + path:<33}{text}".rstrip())
    return lines


def watch_files(tls: Tls, tick: Tick) -> None:
    """Read the files of `tls` again when they change; after a mistake the old ones hold."""

    def reload() -> None:
        try:
            tls.reload()
        except ConfigError as error:
            logger.error("the certificates were not reloaded: %s", error)
        else:
            logger.info("the certificates were reloaded")

    def look() -> None:
        if tls.changed():
            reload()

    tick.every(_LOOK_AT_FILES_S, look)


def keep_lease(replica: Replica, log: Log, tick: Tick) -> None:
    """Hand out messages only as long as no other node may have taken over; publishers wait as long.

    The tick itself looks at the time: a process that was frozen hands out nothing when it wakes.
    """

    def look() -> None:
        left_s = replica.lease_s - replica.unanswered_s
        tick.serve_until(time.perf_counter() + left_s)
        log.set_alarm("journal", "Kafka does not confirm what was written", left_s < 0)
        replica.serving(left_s >= 0)

    look()
    tick.every(_LEASE_LOOK_S, look)


def memory_share(value: int | float) -> int:
    """Bytes of an option that is a part of the memory there is, or a size."""
    return int(value * available_bytes()) if isinstance(value, float) else value


def _memory_limit(config: Config) -> int:
    """Bytes of this process above which publishers wait."""
    return memory_share(config.server.memory_high_watermark) // config.server.workers


def watch_memory(config: Config, log: Log, tick: Tick) -> MemoryAlarm:
    """Have publishers wait while the process uses more memory than `server.memory_high_watermark`."""
    limit = _memory_limit(config)
    caches = config.log.tail_cache_bytes + config.log.read_cache_bytes + config.log.feed_cache_bytes
    if limit and caches > limit // 2:
        logger.warning(
            "the caches of the log may take more than half of what publishers may fill: lower "
            "log.tail_cache_bytes or raise server.memory_high_watermark",
            extra=logs.fields(caches=caches, memory_limit=limit),
        )

    def switch(on: bool) -> None:
        # One reason whatever the limit is: by it the log knows what is over again.
        log.set_alarm("memory", "more bytes of memory are in use than the high watermark allows", on)

    alarm = MemoryAlarm(limit, switch, clock=time.monotonic)
    tick.every(SAMPLE_S, alarm.check)
    return alarm


def _log_options(config: Config) -> LogOptions:
    options: LogOptions = _options(LogOptions, config.log)
    if config.log.min_free_bytes == "auto":
        options = replace(options, min_free_bytes=spare_bytes(file_system_bytes(Path(config.log.data_dir))))
    return options


def file_system_bytes(folder: Path) -> int:
    """Size of the file system that `folder` is in, or will be in when it is made."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def spare_bytes(total: int) -> int:
    """The bytes that must stay free in a file system of this size, for log.min_free_bytes = "auto"."""
    return min(max(total // 20, 2 * 10**9), 50 * 10**9, total // 10)


def _oauth(config: Config) -> OAuth | None:
    """The verifier of tokens, if any log in. Raises ConfigError: a file cannot be used."""
    oauth = config.oauth
    if not oauth.issuer:
        return None
    # Here, since they load PyJWT, and few gateways have tokens.
    from penstock.protocols.login.key_source import key_source
    from penstock.router.authentication.oauth import OAuth, OAuthOptions

    read = key_source(oauth.jwks_file, oauth.jwks_url, oauth.ca_file)
    return OAuth(_options(OAuthOptions, oauth), read)


WORDS = ErrorTexts(answer, encode_properties, decode_properties, amqp091_from_mqtt5)
"""The functions by which the HTTP front end uses AMQP's words."""


def _backlog_quotas(config: Config) -> dict[str, int]:
    quotas = {
        BACKLOG_BYTES: config.log.max_backlog_bytes,
        BACKLOG_REJECT: config.log.max_backlog_bytes_reject,
        BACKLOG_EVICT: config.log.max_backlog_bytes_evict,
    }
    return {name: nbytes for name, nbytes in quotas.items() if nbytes}


def _name(config: Config, replica: Replica | None) -> str:
    """The name of this gateway, in the API, in metrics and in headers."""
    return socket.gethostname() if replica is None else config.cluster.name


def _http_options(config: Config, log: Log, replica: Replica | None) -> http.HttpOptions:
    return http.HttpOptions(
        http=config.http.address,
        http_tls=config.http.tls_address,
        management=config.management.address,
        management_tls=config.management.tls_address,
        metrics=config.metrics.address,
        cluster=_name(config, replica),
        node="" if replica is None else replica.name,
        data_dir=Path(config.log.data_dir),
        disk_free_limit=log.options.min_free_bytes,
        history_bytes=config.management.history_bytes,
        webhooks=_options(WebhookOptions, config.webhooks),
        replication=replica,
    )


def _options(kind: type[Any], section: object) -> Any:
    """The options class of a layer, filled from the section of the configuration with the same keys."""
    named = [option.name for option in option_fields(kind) if "fixed" not in option.metadata]
    return kind(**{name: getattr(section, name) for name in named})
