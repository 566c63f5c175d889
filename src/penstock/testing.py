"""A gateway for tests, in this process: a thread with a loop of its own, free ports, a temporary folder.

    with Gateway() as gateway:
        client = await penstock.connect(gateway.url)

With pytest the fixtures `penstock_gateway` and `penstock_url` are there by themselves.
It is the real one, with what `penstock serve` has, but nothing is synced: a test ends no power supply.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    from penstock.protocols.front import Front

__all__ = ["Gateway"]

_START_S = 60.0


class Gateway:
    """A gateway on loopback; `url`, `amqp_url` and `mqtt_port` say where."""

    def __init__(self, data_dir: Path | None = None) -> None:
        """`data_dir` is kept; None: a temporary folder that goes with the gateway."""
        self._given = data_dir
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._ports: dict[str, int] = {}

    @property
    def url(self) -> str:
        """For `penstock.connect`."""
        return f"penstock://guest:guest@127.0.0.1:{self._ports['native']}/"

    @property
    def amqp_url(self) -> str:
        """For AMQP clients."""
        return f"amqp://guest:guest@127.0.0.1:{self._ports['amqp']}/"

    @property
    def mqtt_port(self) -> int:
        """For MQTT clients, at 127.0.0.1."""
        return self._ports["mqtt"]

    @property
    def port(self) -> int:
        """Of the native protocol."""
        return self._ports["native"]

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
            self._thread.join()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop as SIGTERM does: say goodbye, write what is known. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            thread.join()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def restart(self) -> None:
        """Stop and start again on the same data and port; needs a `data_dir`."""
        port = self.port
        self.stop()
        self.start(port=port)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, folder: Path, port: int) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(folder, port))
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, folder: Path, port: int) -> None:
        # Imported here: a client that tests against something else need not load a gateway.
        from penstock.config import Config
        from penstock.log_core.log import Log
        from penstock.log_core.options import LogOptions
        from penstock.protocols.amqp import dead_letters, delay
        from penstock.protocols.amqp import endpoint as amqp
        from penstock.protocols.amqp.properties import headers_of
        from penstock.protocols.mqtt import endpoint as mqtt
        from penstock.protocols.mqtt.options import MqttOptions
        from penstock.protocols.native import endpoint as native
        from penstock.protocols.native.options import NativeOptions
        from penstock.router.broker import Broker
        from penstock.subscriptions.tick import Tick

        self._loop = loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        config = Config()
        log = Log.open(folder, LogOptions(fsync="never", min_free_bytes=0))
        try:
            tick = Tick(log, loop)
            log.attach(loop.call_soon_threadsafe)
            broker = Broker.open(log, tick, rewrite=dead_letters.rewrite, delay_words=delay.WORDS)
            broker.headers_of = headers_of
            fronts: dict[str, Front] = {}
            amqp_config: Any = _At(config.amqp, "127.0.0.1:0")
            native_options = NativeOptions(listen=f"127.0.0.1:{port}")
            try:
                fronts["amqp"] = await amqp.serve(broker, amqp_config, config.server, loop)
                fronts["mqtt"] = await mqtt.serve(
                    broker, MqttOptions(listen="127.0.0.1:0"), config.server, loop
                )
                fronts["native"] = await native.serve(broker, native_options, config.server, loop)
                self._ports = {name: front.port for name, front in fronts.items()}
                self._ready.set()
                await self._stopping.wait()
            finally:
                for front in fronts.values():
                    await front.drain(10)
                broker.close()
                tick.run()
                tick.close()
        finally:
            log.close_sync()


class _At:
    """A section of the configuration that listens elsewhere."""

    def __init__(self, section: object, address: str) -> None:
        from penstock.config import Address

        self._section = section
        self.address = Address.parse(address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._section, name)
