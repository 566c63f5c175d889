"""Every command that the pages show is run, with its words as they stand there.

A command in a checked block is run by test_docs. The others are run here, against one gateway, with a thing
of the test in place of each name that the page made up (`STAND_INS`). Those that start, move or stop a whole
gateway or cluster have tests of their own (`ELSEWHERE`). Without its arguments a command is a name, and its
help is run.
"""

from __future__ import annotations

import importlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import parser_of
from penstock.errors import ConfigError
from tests.support.brokers import ROOT, Gateway
from tests.support.commands import Run
from tests.support.documented import shown
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

ELSEWHERE = {
    r"serve.*": "tests/e2e/gateway/test_serve.py",
    r"vhosts create NAME --worker 1": "tests/e2e/gateway/test_workers.py",
    r"spark doctor .*": "tests/spark/test_pages.py",
    r"cluster (status|handover|rebuild).*": "tests/cluster/test_cluster.py",
    r"migrate mosquitto mosquitto.*": "tests/e2e/links/test_migrate_mosquitto.py",
    r"migrate rabbitmq http.*": "tests/e2e/rabbitmq/test_migrate_rabbitmq.py",
    r"spark (analytics|dedup|dlq|replay|sink|telemetry|tier|stop) .*": "tests/spark/test_pages.py",
}
"""Command lines, as patterns -> the test that runs them as the pages have them: it reads them there."""

ENDING = {"tail": ["--max", "1"], "top": ["--once"], "bench": ["--messages", "100"]}
"""By command: options with which it ends by itself, and soon."""

STAND_INS = {
    "/etc/penstock/penstock.toml": "penstock.toml",
    "/var/lib/penstock": "DATA",
    "/var/lib/penstock-backup": "COPY",
    "DIR": "DATA",
    "TARGET": "other-copy",
    "TOPIC": "orders-log",
    "TOPIC/NAME": "orders-log/billing",
    "orders/billing": "orders-log/billing",
    "NAME": "made-up",
    "SEQ:HASH": "SEQ:HASH",
    "N": "1",
    "{...}": '{"src-uri": "amqp://127.0.0.1:9", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "q"}',
}
"""Names that pages make up -> those of the test; DATA is the gateway's folder, COPY a backup of it."""


def is_whole(words: list[str]) -> bool:
    """Whether it is a command with its arguments, and not only the name of one."""
    command, *rest = words
    if any(word in ("...", "VERB", "WHAT") or word.startswith("[") for word in rest):
        return False
    if command not in MODULES:
        return command in ("--help", "--version")
    if command in FOREIGN:
        verbs = importlib.import_module(f"penstock.cli.{MODULES[command][0]}").VERBS
        # A job of Spark needs options, and a move the place that it is from.
        more = rest[1:]
        if (command == "spark" and not more) or (
            command == "migrate" and (not more or more[0].startswith("-"))
        ):
            return False
        return bool(rest) and rest[0] in (*verbs, "help")
    if command == "log" and len(rest) < 2:
        return False  # it would be about a folder of the reader's
    try:
        parser_of(command).parse_args(rest)
    except ConfigError:
        return False
    return True


def kinds() -> tuple[list[list[str]], list[list[str]], dict[str, str]]:
    """Commands that are run here, names of commands, and (command line -> its test) of the others."""
    here, names, elsewhere = [], [], {}
    for line in shown():
        words = shlex.split(line)
        test = next((test for pattern, test in ELSEWHERE.items() if re.fullmatch(pattern, line)), None)
        if test is not None:
            elsewhere[line] = test
        elif is_whole(words):
            here.append(words)
        else:
            names.append(words)
    return here, names, elsewhere


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    bridge = '[{name = "plant", address = "127.0.0.1:9", topics = ["sensors/# out 1"]}]'
    settings = {**SETTINGS, "links.bridges": bridge}
    with Gateway(tmp_path_factory.mktemp("shown"), settings=settings) as running:
        yield running


@pytest.fixture
def run(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs commands in a folder of the test, in which the files are that the pages name."""
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text("")
    Path("rabbitmq.conf").write_text("listeners.tcp.default = 5672\n")
    Path("shovel.json").write_text(STAND_INS["{...}"])
    return Run(capsys)


def test_the_commands_of_the_pages_are_run(
    run: Run, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = """
        vhosts create plant
        users grant --vhost plant guest .* .* .*
        queues create orders
        queues create orders.dead
        topics create orders-log
        subs create orders-log/billing
        exchanges create orders --type topic
        exchanges create made-up
        users create ann --password s3cret
        users create viewer --password s3cret
        users create plant --password s3cret
        topics create clicks
        shovels create made-up @shovel.json
        pub --topic orders-log kept
        pub --queue orders.dead dead
        definitions export definitions.json
    """
    for line in prepared.strip().splitlines():
        run(*line.split())
    entry = run.json("audit", "verify")[0]
    stands = {
        **STAND_INS,
        "DATA": str(gateway.data_dir),
        "COPY": "copy",
        "SEQ:HASH": f"{entry['last']}:{entry['hash']}",
    }
    files = 0
    here, _, _ = kinds()
    monkeypatch.setenv("PENSTOCK__LOG__DATA_DIR", "copy")  # of commands about a log that say no folder
    order = ("log backup", "log export", "users create", "users grant")
    here.sort(key=lambda words: next((at for at, one in enumerate(order) if one == " ".join(words[:2])), 9))
    for words in here:
        placed = [stands.get(stands.get(word, word), stands.get(word, word)) for word in words]
        if "FILE" in words:
            files += 1
            name = {"import": "exported.gz", "export": "exported.gz"}.get(words[1], "penstock.toml")
            name = "definitions.json" if words[0] == "definitions" else name
            placed = [name if word == "FILE" else word for word in placed]
        if words[:2] == ["log", "import"]:
            placed[2] = "imported"
        placed += ENDING.get(words[0], [])
        typed = Path("definitions.json").read_text() if words[:2] == ["definitions", "import"] else "s3cret\n"
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        run(*placed)


def test_names_of_commands_have_a_help(run: Run) -> None:
    _, names, _ = kinds()
    commands = {tuple(words[:1]) if words[0] in FOREIGN else named(words) for words in names}
    assert len(commands) > 10
    for command in commands:
        assert "usage" in run(*command, "--help").lower(), command


def named(words: list[str]) -> tuple[str, ...]:
    """The command and its verb, if it has one there."""
    verbs = parser_of(words[0]).verbs() if words[0] in MODULES else {}
    return tuple(words[:2]) if len(words) > 1 and words[1] in verbs else tuple(words[:1])


def test_the_other_commands_are_run_as_the_pages_have_them() -> None:
    _, _, elsewhere = kinds()
    assert {*elsewhere.values()} == {*ELSEWHERE.values()}, "an entry that no page needs"
    for pattern, test in ELSEWHERE.items():
        source = (ROOT / test).read_text()
        # Spark's reads its page by itself.
        reads = "commands(PAGE" if "spark" in test else f'documented(r"{pattern}")'
        assert reads in source, (pattern, test)
