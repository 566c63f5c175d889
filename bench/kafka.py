"""Kafka as a peer: its programs from Maven Central, one broker in KRaft mode, its own perf tools.

The jars are fetched once by Maven's own client into a folder given by the caller. The broker listens on
free ports of loopback, with the settings of its `config/kraft/server.properties` and the heap of its start
script; it is stopped by its process id.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.brokers import Broker, BrokerFailed, BrokerMissing, can_connect, free_port

VERSION = "3.9.1"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
)
HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-server")

_REQUESTS = (
    "log4j.appender.requests=org.apache.log4j.FileAppender\n"
    "log4j.appender.requests.File={file}\n"
    "log4j.appender.requests.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.requests.layout.ConversionPattern=%m%n\n"
    "log4j.logger.kafka.request.logger=DEBUG, requests\n"
    "log4j.additivity.kafka.request.logger=false\n"
)


def jars(folder: Path) -> Path:
    """The folder with Kafka's jars, fetched when it is not there. Raises BrokerMissing: no Java or Maven."""
    return fetched(folder / f"kafka-{VERSION}", ARTIFACTS)


def fetched(place: Path, artifacts: tuple[str, ...], *, alone: bool = False) -> Path:
    """`place` with these artifacts of Maven Central (group:name:version) and what they need, fetched once.

    `alone`: without what they need. Raises BrokerMissing: no Java, no Maven, or they cannot be had.
    """
    for program, package in (("java", "default-jre-headless"), ("mvn", "maven")):
        if shutil.which(program) is None:
            raise BrokerMissing(f"{program} is not installed: apt-get install {package}")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one fetches
        names = [artifact.split(":") for artifact in artifacts]
        if not all((place / f"{name}-{version}.jar").exists() for _, name, version in names):
            _fetch(place, names, alone)
    return place


def _fetch(place: Path, names: list[list[str]], alone: bool) -> None:
    nothing = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    without = f"<exclusions>{nothing}</exclusions>" if alone else ""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{without}</dependency>\n"
        for group, name, version in names
    )
    (place / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n<modelVersion>4.0.0</modelVersion>\n'
        "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{wanted}</dependencies></project>\n"
    )
    fetch = ["mvn", "-q", "-B", "-f", str(place / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run([*fetch, f"-DoutputDirectory={place}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        wanted = ", ".join(":".join(name) for name in names)
        raise BrokerMissing(f"{wanted} could not be fetched: {done.stdout}{done.stderr}")


def cluster_id() -> str:
    """A new id for a cluster."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Door:
    """A further listener of a broker, such as one behind a proxy, or with a login."""

    name: str
    port: int
    advertised: int
    """The port that clients are told."""
    protocol: str = "PLAINTEXT"
    options: tuple[str, ...] = ()
    """Lines of the broker's configuration."""


class Kafka(Broker):
    """One broker that is its own controller, or one of several (`quorum`)."""

    name = "kafka"
    start_timeout_s = 120.0
    stop_timeout_s = 60.0
    clean_exit_codes = frozenset({0, 143})

    def __init__(
        self,
        folder: Path,
        jars: Path,
        options: tuple[str, ...] = (),
        *,
        number: int = 1,
        quorum: Mapping[int, int] | None = None,
        cluster: str | None = None,
        heap: tuple[str, ...] = HEAP,
        doors: tuple[Door, ...] = (),
        users: Mapping[str, str] | None = None,
        notes_requests: bool = False,
    ) -> None:
        """Not started.

        Args:
            folder: Where its files go.
            jars: The folder with Kafka's jars.
            options: Lines of its configuration.
            number: Of this broker.
            quorum: The port of each broker's controller, by number.
            cluster: The id that all share.
            heap: Options of the Java machine.
            doors: Further listeners.
            users: The passwords of those that log in by SCRAM.
            notes_requests: `requests` has each request with its times. It costs some CPU.

        """
        super().__init__(folder)
        self._notes_requests = notes_requests
        self._jars = jars
        self._options = options
        self._number = number
        self._heap = heap
        self._doors = doors
        self._users = dict(users or {})
        self.port = free_port()
        self._quorum = dict(quorum or {number: free_port()})
        self._cluster = cluster or cluster_id()

    def command(self) -> list[str]:
        return ["java", *self._heap, *self._java(), "kafka.Kafka", str(self._properties())]

    def launch(self) -> None:
        if not (self.data_dir / "meta.properties").exists():
            users = [
                f"--add-scram=SCRAM-SHA-512=[name={name},password={password}]"
                for name, password in self._users.items()
            ]
            self.tool(
                "kafka.tools.StorageTool",
                *("format", f"--cluster-id={self._cluster}", "-c", str(self._properties()), *users),
            )
        super().launch()

    def _properties(self) -> Path:
        file = self.folder / "server.properties"
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in self._quorum.items())
        named = [f"PLAINTEXT://127.0.0.1:{self.port}"]
        lines = [
            "process.roles=broker,controller",
            f"node.id={self._number}",
            f"controller.quorum.voters={voters}",
            f"listeners=CONTROLLER://127.0.0.1:{self._quorum[self._number]},"
            + ",".join([*named, *(f"{door.name}://127.0.0.1:{door.port}" for door in self._doors)]),
            "advertised.listeners="
            + ",".join([*named, *(f"{door.name}://127.0.0.1:{door.advertised}" for door in self._doors)]),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
            + "".join(f",{door.name}:{door.protocol}" for door in self._doors),
            *(line for door in self._doors for line in door.options),
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.data_dir}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *self._options,
        ]
        file.write_text("\n".join(lines) + "\n")
        return file

    def _java(self) -> list[str]:
        log4j = self.folder / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.target=System.err\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%d %p %m%n\n"
            + (_REQUESTS.format(file=self._requests) if self._notes_requests else "")
        )
        return [f"-Dlog4j.configuration=file:{log4j}", "-cp", f"{self._jars}/*"]

    def tool(self, *words: str) -> str:
        """Run one of Kafka's programs by its class; what it printed. Raises BrokerFailed."""
        done = subprocess.run(
            ["java", "-Xmx512m", *self._java(), *words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise BrokerFailed(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def _requests(self) -> Path:
        return self.folder / "requests.log"

    def requests(self, api: str) -> Iterator[dict[str, float]]:
        """The times in ms of all requests of one kind (PRODUCE, FETCH), in order, and their `acks`."""
        with self._requests.open() as lines:
            for line in lines:
                told = json.loads(line[line.index("{") :])
                if told["requestHeader"]["requestApiKeyName"] == api:
                    times = {name: told[name] for name in told if name.endswith("TimeMs")}
                    yield {**times, "acks": told["request"].get("acks", 0)}

    def serving(self) -> bool:
        return "Kafka Server started" in self.log_text() and can_connect(self.port)

    def version(self) -> str:
        return VERSION

    def create_synced(self, topic: str) -> None:
        """Make a topic whose every batch is synced before it is confirmed (`flush.messages=1`)."""
        self.tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", f"127.0.0.1:{self.port}", "--create", "--topic", topic),
            *("--config", "flush.messages=1"),
        )

    # Its perf tools

    def produce(self, topic: str, records: int, size: int, *, batch_bytes: int = 262_144) -> float:
        """Produce with acks=all; the seconds between the first send and the last confirm."""
        told = self.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers=127.0.0.1:{self.port}"),
            *("acks=all", f"batch.size={batch_bytes}", "linger.ms=5", "buffer.memory=134217728"),
        )
        rates = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", told)
        return int(rates[-1][0]) / float(rates[-1][1])

    def consume(self, topic: str, records: int) -> float:
        """Read the topic from its beginning; the seconds of fetching, without joining the group."""
        told = self.tool(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", f"127.0.0.1:{self.port}", "--topic", topic),
            *("--messages", str(records), "--fetch-size", str(1 << 20)),
            *("--timeout", "60000", "--hide-header"),
        )
        # start, end, MB, MB/s, messages, messages/s, rebalance ms, fetch ms, fetch MB/s, fetch messages/s
        fields = [field.strip() for field in told.strip().splitlines()[-1].split(",")]
        if int(fields[4]) < records:
            raise BrokerFailed(f"{fields[4]} of {records} messages came\n{told}")
        return int(fields[7]) / 1000
