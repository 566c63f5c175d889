"""A gateway for tests, in this process: a thread with a loop of its own, free ports, a temporary folder.

    with Gateway() as gateway:
        client = await penstock.connect(gateway.url)

With pytest the fixtures `penstock_gateway` and `penstock_url` are there by themselves.
It is the real one, with what `penstock serve` has, but nothing is synced: a test ends no power supply. Its
clock can be moved: `Gateway.advance`.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.moving_clock import MovingClock

if TYPE_CHECKING:
    from typing import Self

    from penstock.config import Config
    from penstock.log_core.log import Log
    from penstock.protocols.tls.contexts import Tls

__all__ = ["Gateway"]

_START_S = 180.0


class Gateway:
    """A gateway on loopback; `url`, `amqp_url`, `http_url` and `mqtt_port` say where."""

    def __init__(self, data_dir: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        """A gateway that does not run yet.

        Args:
            data_dir: Is kept; None: a temporary folder that goes with the gateway.
            settings: Options of the configuration by SECTION.KEY, as `penstock serve --set` has them.

        """
        self._given = data_dir
        self._settings = dict(settings or {})
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._listeners: dict[str, int] = {}
        self._log: Log | None = None
        self._clock = MovingClock()

    @property
    def url(self) -> str:
        """For `penstock.connect`."""
        return f"penstock://guest:guest@127.0.0.1:{self._listeners['native']}/"

    @property
    def amqp_url(self) -> str:
        """For AMQP clients."""
        return f"amqp://guest:guest@127.0.0.1:{self._listeners['amqp']}/"

    @property
    def mqtt_port(self) -> int:
        """For MQTT clients, at 127.0.0.1."""
        return self._listeners["mqtt"]

    @property
    def port(self) -> int:
        """Of the native protocol."""
        return self._listeners["native"]

    @property
    def http_url(self) -> str:
        """For HTTP clients, who log in as guest with the password guest."""
        return f"http://127.0.0.1:{self._listeners['http']}"

    def listener(self, name: str) -> int:
        """Port of a listener by its name in the ready line, e.g. "natives"; KeyError: it is off."""
        return self._listeners[name]

    def start(self, *, port: int = 0) -> Self:
        """Start, and wait until clients can connect; `port` is the native protocol's, 0 = a free one.

        Raises:
            PenstockError: it cannot start.

        """
        if self._given is None:
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-")
        folder = self._given or Path(self._folder.name if self._folder else "")
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(
            target=self._run, args=(folder, port), name="penstock-gateway", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise TimeoutError(f"the gateway did not start within {_START_S:.0f} s")
        if self._failure is not None:
            self.stop()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop as SIGTERM does: say goodbye, write what is known. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._loop is not None and self._stopping is not None and self._failure is None:
                self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
        self._loop = self._stopping = self._log = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def restart(self) -> None:
        """Stop and start again on the same data and port; needs a `data_dir`."""
        port = self.port
        self.stop()
        self.start(port=port)

    def now(self) -> float:
        """Seconds since the epoch by the gateway's clock, which `advance` moves. From any thread.

        A client that is to go by it: `penstock.connect(gateway.url, clock=gateway.now)`.
        """
        return self._clock.wall()

    def advance(self, seconds: float) -> None:
        """Move the gateway's clock forward: as if it, and what it runs on, had slept for so long.

        Delayed messages become due, `ttl_s`, `ack_timeout_s` and `nack_backoff_s` run out, half messages are
        asked about, queues and MQTT sessions expire, retention drops what is too old (as ever by whole files
        of the log, in the background, within a second or so). It has happened in the gateway when this
        returns; the messages are on their way to their consumers, who wait for them as they always do. What
        would have happened at several times happens at one; advance in steps to see each.

        Not moved are the times of connections (heartbeats, logins, how long a `pull` of the other side takes)
        and of what is signed elsewhere (tokens, certificates), nor what a client counts by itself: its
        timeouts, and `deliver_after_s` unless it has the gateway's clock (see `now`). A delay that HTTP's
        `delay_ms` asks for counts from the machine's time. Blocks until it is done; with asyncio call it
        by `asyncio.to_thread`, or as it is: it takes milliseconds.

        Raises:
            ValueError: it goes backwards.
            RuntimeError: it does not run.

        """
        if seconds < 0:
            raise ValueError(f"the clock of a gateway only goes forward, not by {seconds} s")
        loop, log = self._loop, self._log
        if self._thread is None or loop is None or log is None:
            raise RuntimeError("the gateway does not run: with Gateway() as gateway: ...")

        async def move() -> None:
            await self._clock.advance(seconds)
            log.tend(None)  # what it does each second

        asyncio.run_coroutine_threadsafe(move(), loop).result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, folder: Path, port: int) -> None:
        # Imported here: a client that tests against something else need not load a gateway.
        import uvloop

        from penstock.config import load
        from penstock.gateway.server import open_log, open_tls

        try:
            listen = {"amqp": 0, "mqtt": 0, "http": 0, "native": port}
            settings = {f"{name}.listen": f"127.0.0.1:{port}" for name, port in listen.items()}
            settings |= {"management.listen": "", "metrics.listen": ""}
            settings |= {"log.data_dir": str(folder), "log.fsync": "never", "log.min_free_bytes": "0"}
            config = load(
                sets=[f"{key}={value}" for key, value in {**settings, **self._settings}.items()]
            ).config
            tls = open_tls(config)
            log = open_log(config, self._clock.wall)
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(self._serve(config, log, tls))
            finally:
                log.close_sync()
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, config: Config, log: Log, tls: Tls | None) -> None:
        from penstock.gateway.server import running

        self._loop = asyncio.get_running_loop()
        self._log = log
        self._clock.attach(self._loop)
        self._stopping = asyncio.Event()
        async with running(config, log, tls, timers=self._clock) as parts:
            self._listeners = {
                name: listener.port
                for front_end in parts.front_ends.values()
                for name, listener in front_end.listeners.items()
            }
            self._ready.set()
            await self._stopping.wait()
