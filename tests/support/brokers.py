"""Brokers as child processes: penstock itself, and the two reference brokers it is measured against.

Each broker runs on loopback ports of its own with a private folder, is waited for until it serves, and is
stopped by its process id. `restart` uses the same data and the same ports, so that clients which reconnect
find it. Nothing here knows what a test or a benchmark does with it.

    with RabbitMQ(tmp_path) as broker:      # or Mosquitto(...), Gateway(...)
        connect(broker.amqp_port)
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.support.forks import ForkedProcess, forks

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: the gateway is started from it."""

RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
MOSQUITTO_PLACES = ("mosquitto", "/usr/sbin/mosquitto")

DEFAULT_LISTENERS = ("http.listen", "management.listen", "native.listen", "metrics.listen")
"""They are on by default, at ports that several gateways at a time cannot have."""

READY_LINE = re.compile(
    r"^ready\b(?=.*\bamqp=(?P<amqp>\S+))(?=.*\bmqtt=(?P<mqtt>\S+))(?=.*\bdata=(?P<data>\S+))", re.MULTILINE
)


class BrokerMissing(Exception):
    """The broker's program is not installed; the text names the Debian package that brings it."""


class BrokerFailed(Exception):
    """The broker ended, or did not serve in time; the text ends with the tail of its log."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago, and that this run gives to nobody else.

    It is below the range from which the kernel takes the ports of outgoing connections: a client that keeps
    trying to reach a stopped broker could otherwise be given the broker's own port, and the restart would
    find it taken. Each worker of pytest-xdist has ports of its own: between this look and the moment when a
    broker listens, or while it is stopped, another one could find it free, too.
    """
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    mine = range(10240 + worker, lowest_outgoing, workers)
    while True:
        port = random.SystemRandom().choice(mine)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.append(port)
            return port


_given: deque[int] = deque(maxlen=256)
"""The ports given last."""


def can_connect(port: int) -> bool:
    """Whether somebody accepts connections on 127.0.0.1:`port` now."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Broker:
    """One broker process and its folder. Subclasses say how it is started and when it serves."""

    name = "broker"
    speaks: frozenset[str] = frozenset()
    """The protocols it serves: a subset of {"amqp", "mqtt"}."""

    start_timeout_s = 300.0
    stop_timeout_s = 60.0
    clean_exit_codes: frozenset[int] = frozenset({0})

    amqp_port = 0
    mqtt_port = 0

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = self.folder / "data"
        self.data_dir.mkdir(exist_ok=True)
        self.log_path = self.folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._log_offset = 0

    # For subclasses to provide

    def command(self) -> list[str]:
        """The program and its arguments."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Variables set in addition to the caller's environment."""
        return {}

    def serving(self) -> bool:
        """Whether the process started last serves its protocols now."""
        raise NotImplementedError

    def version(self) -> str:
        """The broker's version, for reports."""
        raise NotImplementedError

    # Life

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        if self._process is None:
            raise BrokerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the process and wait until it serves; one that does not is ended."""
        self.launch()
        try:
            self.wait_until_serving()
        except BaseException:
            self.kill9()
            raise
        return self

    def launch(self) -> None:
        """Start the process and return at once."""
        if self.running:
            raise BrokerFailed(f"{self.name} is running already")
        self._log_offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        command, environment = self.command(), {**os.environ, **self.environment()}
        with self.log_path.open("ab") as log:
            self._process = forks.start(command, log, self.folder, environment) or subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )

    def wait_until_serving(self) -> None:
        """Wait for the process launched last; raises BrokerFailed when it ends or takes too long."""
        deadline = time.monotonic() + self.start_timeout_s
        while not self.serving():
            if not self.running:
                code = self._process.returncode if self._process is not None else None
                raise BrokerFailed(f"{self.name} ended with {code} at start\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill9()
                raise BrokerFailed(f"{self.name} not ready in {self.start_timeout_s} s\n{self.log_tail()}")
            time.sleep(0.005)

    def kill9(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """SIGTERM, wait, and return the exit code; a code that is not a clean exit raises BrokerFailed."""
        if self._process is None:
            raise BrokerFailed(f"{self.name} was never started")
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise BrokerFailed(
                f"{self.name} ignored SIGTERM for {self.stop_timeout_s} s\n{self.log_tail()}"
            ) from None
        if code not in self.clean_exit_codes:
            raise BrokerFailed(f"{self.name} ended with {code} on SIGTERM\n{self.log_tail()}")
        return code

    def restart(self) -> Self:
        """Start again on the same data and ports; a process that still runs is terminated first."""
        if self.running:
            self.terminate()
        return self.start()

    def close(self) -> None:
        """End the process if it runs; the folder stays."""
        if self.running:
            try:
                self.terminate()
            finally:
                self.kill9()

    def log_text(self) -> str:
        """The output of the latest process so far."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._log_offset)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of what the process started last has printed."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


class Gateway(Broker):
    """`penstock serve` from this checkout.

    Args:
        folder: Where its files go.
        settings: Further settings, as for `--set`.
        ports: (amqp, mqtt) to listen on; 0 lets the gateway choose at its first start. Default: free ones.

    """

    name = "penstock"
    speaks = frozenset({"amqp", "mqtt"})

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(folder)
        self.data_dir.chmod(0o700)  # as a gateway makes it
        self.settings = dict(settings or {})
        self.amqp_port, self.mqtt_port = ports or (free_port(), free_port())
        self.ports: dict[str, int] = {}
        """Every port of the ready line by its name there, such as amqps."""

    def command(self) -> list[str]:
        listeners = {
            "amqp.listen": f"127.0.0.1:{self.amqp_port}",
            "mqtt.listen": f"127.0.0.1:{self.mqtt_port}",
            **dict.fromkeys(DEFAULT_LISTENERS, ""),
        }
        words = [sys.executable, "-m", "penstock", "serve", "--data", str(self.data_dir)]
        for key, value in {**listeners, **self.settings}.items():
            words += ["--set", f"{key}={value}"]
        return words

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}

    def serving(self) -> bool:
        ready = READY_LINE.search(self.log_text())
        if ready is None or "\n" not in ready.string[ready.start() :]:  # a line may be read half written
            return False
        self.amqp_port = int(ready["amqp"].rpartition(":")[2])
        self.mqtt_port = int(ready["mqtt"].rpartition(":")[2])
        addresses = (word.partition("=") for word in ready.string[ready.start() :].split("\n")[0].split())
        self.ports = {
            name: int(address.rpartition(":")[2])
            for name, _, address in addresses
            if name not in ("ready", "data") and not address.startswith("unix:")
        }
        return True

    def version(self) -> str:
        source = (ROOT / "src" / "penstock" / "__init__.py").read_text()
        found = re.search(r'__version__ *(?::[^=]*)?= *"([^"]+)"', source)
        return found[1] if found else "unknown"


class RabbitMQ(Broker):
    """Debian's RabbitMQ with a private node name, cookie, database and epmd.

    Args:
        folder: Where its files go.
        plugins: Plug-ins to enable; `rabbitmq_mqtt` adds an MQTT listener.
        peer: A node that runs, whose cluster `start` joins. It is closed after this one.
        options: Further lines of its rabbitmq.conf.
        epmd_port: Of a port mapper that runs already; 0: it starts one of its own.

    """

    name = "rabbitmq"
    speaks = frozenset({"amqp"})

    def __init__(
        self,
        folder: Path,
        *,
        plugins: tuple[str, ...] = (),
        peer: RabbitMQ | None = None,
        options: tuple[str, ...] = (),
        epmd_port: int = 0,
    ) -> None:
        super().__init__(folder)
        self._options = options
        self._has_epmd = not epmd_port and peer is None
        if not RABBITMQ_SCRIPT.exists() or shutil.which("epmd") is None:
            raise BrokerMissing("RabbitMQ is not installed: apt-get install rabbitmq-server")
        self._plugins = plugins
        self._peer = peer
        self._cookie: str = peer._cookie if peer else secrets.token_hex(16)
        self._epmd: subprocess.Popen[bytes] | None = None
        self._epmd_port: int = epmd_port or (peer._epmd_port if peer else free_port())
        self.dist_port = free_port()
        self.amqp_port = free_port()
        self.mqtt_port = free_port() if "rabbitmq_mqtt" in plugins else 0
        self.management_port = free_port() if "rabbitmq_management" in plugins else 0

    def command(self) -> list[str]:
        return [str(RABBITMQ_SCRIPT)]

    def environment(self) -> Mapping[str, str]:
        etc = self.folder / "etc"
        etc.mkdir(exist_ok=True)
        (etc / "enabled_plugins").write_text(f"[{','.join(self._plugins)}].\n")
        lines = [f"listeners.tcp.1 = 127.0.0.1:{self.amqp_port}", "log.console = true", "log.file = false"]
        if self.mqtt_port:
            lines.append(f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.mqtt_port}")
        if self.management_port:
            lines.append("management.tcp.ip = 127.0.0.1")
            lines.append(f"management.tcp.port = {self.management_port}")
        (etc / "rabbitmq.conf").write_text("\n".join([*lines, *self._options]) + "\n")
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(self._cookie)
            cookie.chmod(0o400)
        return {
            "HOME": str(self.folder),
            "RABBITMQ_HOME": "/usr/lib/rabbitmq/lib/rabbitmq_server-" + self.version(),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_MNESIA_BASE": str(self.data_dir),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(etc / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(etc / "none.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(etc / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "rabbitmq.pid"),
            # The start script then replaces itself by the Erlang machine, so that our process id is the
            # broker's.
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
        }

    @property
    def node(self) -> str:
        """Its name in a cluster."""
        return f"penstock-peer-{self.amqp_port}@localhost"

    def start(self) -> Self:
        super().start()
        if self._peer is not None:
            for words in (("stop_app",), ("join_cluster", self._peer.node), ("start_app",)):
                self.ctl(*words)
        return self

    def launch(self) -> None:
        if self._has_epmd and (self._epmd is None or self._epmd.poll() is not None):
            self._epmd = subprocess.Popen(
                ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while not can_connect(self._epmd_port):
                if self._epmd.poll() is not None:
                    raise BrokerFailed(f"epmd ended with {self._epmd.returncode}")
                time.sleep(0.005)
        super().launch()

    def serving(self) -> bool:
        return "Server startup complete" in self.log_text()

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._epmd is not None:
                self._epmd.kill()
                self._epmd.wait()
                self._epmd = None

    def ctl(self, *words: str) -> str:
        """Run rabbitmqctl on this node; what it printed."""
        program = RABBITMQ_SCRIPT.with_name("rabbitmqctl")
        done = subprocess.run(
            [str(program), "-q", *words],
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            timeout=300,  # each is an Erlang machine that starts
            check=False,
        )
        if done.returncode != 0:
            raise BrokerFailed(f"rabbitmqctl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def version(self) -> str:
        places = sorted(RABBITMQ_SCRIPT.parent.parent.glob("lib/rabbitmq_server-*"))
        return places[-1].name.partition("-")[2] if places else "unknown"


class Mosquitto(Broker):
    """Debian's Mosquitto with its default limits.

    Args:
        folder: Where its files go.
        persistence: Whether it keeps its database file (it writes it at exit and every 1,800 s).
        options: Further lines of its configuration file.

    """

    name = "mosquitto"
    speaks = frozenset({"mqtt"})

    def __init__(self, folder: Path, *, persistence: bool = False, options: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        program = next(filter(None, map(shutil.which, MOSQUITTO_PLACES)), None)
        if program is None:
            raise BrokerMissing("Mosquitto is not installed: apt-get install mosquitto")
        self._program = program
        self._persistence = persistence
        self.options = options
        """Further lines of its configuration file; they count from its next start."""
        self.mqtt_port = free_port()

    def command(self) -> list[str]:
        config = self.folder / "mosquitto.conf"
        lines = [
            f"listener {self.mqtt_port} 127.0.0.1",
            "allow_anonymous true",
            "user root",
            f"persistence {'true' if self._persistence else 'false'}",
            f"persistence_location {self.data_dir}/",
            *self.options,
        ]
        config.write_text("\n".join(lines) + "\n")
        return [self._program, "-c", str(config)]

    def serving(self) -> bool:
        return self.running and can_connect(self.mqtt_port)

    def version(self) -> str:
        text = subprocess.run([self._program, "-h"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\S+)", text)
        return found[1] if found else "unknown"


BROKERS: dict[str, Callable[[Path], Broker]] = {
    "penstock": Gateway,
    "rabbitmq": lambda folder: RabbitMQ(
        folder, plugins=("rabbitmq_mqtt", "rabbitmq_recent_history_exchange")
    ),
    "mosquitto": lambda folder: Mosquitto(folder, persistence=True),
}
"""By the name given to `--broker`."""
