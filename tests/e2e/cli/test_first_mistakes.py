"""Mistakes of the first hour: each gets one line that names it, and no traceback."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.commands import Run
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

LISTENING = {**SETTINGS, **{f"{name}.listen": "127.0.0.1:0" for name in ("http", "native", "metrics")}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("mistaken"), settings=LISTENING) as running:
        yield running


@pytest.fixture
def run(gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    return Run(capsys)


# Standard streams


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("config show >&-", 1, "penstock: error: standard output is closed"),
        ("config show >/dev/full", 1, "penstock: error: standard output: No space left on device"),
        ("queues list 2>&-", 1, ""),
        ("users create ann <&-", 1, "penstock: error: no password for user 'ann'"),
        ("pub --queue QUEUE <&-", 0, ""),
        ("sub --queue QUEUE --drain >&-", 1, "penstock: error: standard output is closed"),
        ("sub --queue QUEUE --drain >/dev/full", 1, "penstock: error: standard output: No space left on dev"),
        ("sub --queue QUEUE --drain", 0, ""),
    ],
)
def test_a_closed_stream_or_a_full_disk_is_said(
    run: Run, gateway: Gateway, line: str, code: int, words: str
) -> None:
    run("queues", "create", "streams")
    if "sub" in line:
        run("pub", "--queue", "streams", "kept")
    url = "http://127.0.0.1:1" if "2>" in line else os.environ["PENSTOCK_URL"]
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m penstock {line.replace('QUEUE', 'streams')}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PENSTOCK_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code and done.stderr.startswith(words), done
    assert done.stderr.count("\n") == bool(words)
    if line == "sub --queue QUEUE --drain":
        assert done.stdout == "kept\n" * 3, "what a command could not print is there, and not leased"


def test_any_bytes_are_published_and_any_locale_prints_them(run: Run, unique: str) -> None:
    run("queues", "create", unique)
    in_ascii = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

    def shell(line: str, more: dict[str, str], code: int = 0) -> tuple[bytes, bytes]:
        ran = subprocess.run(
            ["bash", "-c", f'penstock() {{ {sys.executable} -m penstock "$@"; }}; {line}'],
            env={**environment, **more},
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == code, ran
        return ran.stdout, ran.stderr

    for more in (in_ascii, {"PYTHONIOENCODING": "utf-8:strict"}):
        shell(f"printf 'gr\\xc3\\xbc\\xc3\\xbc\\n\\xff\\xfe\\n' | penstock pub --queue {unique}", more)
        shell(f"penstock pub --queue {unique} $'\\xc3\\xbc'", more)
        told, _ = shell(f"penstock sub --queue {unique} --drain", more)
        letter = b"\\xfc" if more is in_ascii else "ü".encode()
        assert told == b"gr" + 2 * letter + b"\n//4=\n" + letter + b"\n"
        _, said = shell(f"penstock pub --queue {unique} $'\\xff'", more, 2)
        assert said.startswith(b"penstock: error: b'\\xff' is not UTF-8; ")
        _, said = shell(f"printf '\\xff' | penstock pub --queue {unique} --json", more, 1)
        assert said == b"penstock: error: not JSON: b'\\xff'\n"


# Addresses


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:AMQP", "gave no answer over http; name the address of management.li"),
        ("http://127.0.0.1:MQTT", "gave no answer over http; name the address of management.li"),
        ("http://127.0.0.1:NATIVE", "gave no answer over http; name the address of management.li"),
        ("https://127.0.0.1:MANAGEMENT", "gave no answer over https; name the address of management.l"),
        ("http://127.0.0.1:HTTP", "the management API is not at this address, but at that of management.li"),
        ("http://127.0.0.1:METRICS", "the management API is not at this address, but at that of management"),
        ("http://u:pw@127.0.0.1:port", "http://127.0.0.1:port is no URL of a management API; write http://"),
        ("http://u:pw@127.0.0.1:99999", "http://127.0.0.1:99999 is no URL of a management API; write http"),
        ("amqp://u:pw@127.0.0.1", "amqp://127.0.0.1 is no URL of a management API; write http://HOST:PORT"),
        ("127.0.0.1:15672", "127.0.0.1:15672 is no URL of a management API; write http://HOST:PORT"),
    ],
)
def test_an_address_of_something_else_is_said(run: Run, gateway: Gateway, url: str, words: str) -> None:
    ports = {"amqp": gateway.amqp_port, "mqtt": gateway.mqtt_port, **gateway.ports}
    for name, port in ports.items():
        url = url.replace(f":{name.upper()}", f":{port}")
    for verb in (
        ("queues", "list"),
        ("queues", "show", "q"),
        ("exchanges", "create", "x"),
        ("top", "--once"),
    ):
        run(*verb, "--url", url, code=1)
        said = run.errors.removesuffix("\n")
        assert words in said and said.isprintable(), said


@pytest.mark.parametrize("listener", ["http", "management", "metrics"])
def test_of_health_two_pages_need_no_login_and_say_nothing_else(gateway: Gateway, listener: str) -> None:
    base = f"http://127.0.0.1:{gateway.ports[listener]}"
    for page in ("healthz", "readyz"):
        answer = httpx.get(f"{base}/{page}?verbose=1", timeout=LIMIT_S)
        assert (answer.status_code, answer.text) == (200, "ok\n")
    for page in ("healthz/x", "livez", "api/healthz", "api/overview", "v1/healthz", "v1/vhosts/%2F/queues"):
        answer = httpx.get(f"{base}/{page}", timeout=LIMIT_S)
        assert answer.status_code == (404 if listener == "metrics" else 401), page


# Names and values


@pytest.mark.parametrize(
    "words",
    [
        "queues create NAME",
        "queues delete NAME",
        "queues show NAME",
        "exchanges show NAME",
        "exchanges delete NAME",
        "topics create NAME",
        "topics show NAME",
        "users delete NAME",
        "vhosts create NAME",
        "policies delete NAME",
        "webhooks show NAME",
        "connections close NAME",
        "pub --queue NAME x",
        "tail --topic NAME --max 1",
        "dlq peek NAME",
        "queues list --vhost NAME",
    ],
)
def test_an_empty_name_is_said(run: Run, words: str) -> None:
    run(*("" if word == "NAME" else word for word in words.split()), code=1)
    assert run.errors.startswith("penstock: error: a name is empty; ")


MISTAKES = {
    'shovels create s {"src-uri":1}': "Validation failed; ",
    'policies create p ^q {"message-ttl":"x"}': "'x' is not a valid message TTL",
    'policies create p ^q {"message-tll":5}': "no setting 'message-tll'; did you mean 'message-ttl'?",
    "queues create QUEUE --type quorum": "'QUEUE' is there already: its x-queue-type is none, not 'quorum'; "
    "`penstock queues show QUEUE` shows it",
    "topics create QUEUE": "queue 'QUEUE' is there already: its x-queue-type is none, not 'stream'",
    "exchanges create amq.topic --type fanout": "'amq.topic' is there already: its type is 'topic', not "
    "'fanout'; `penstock exchanges show amq.topic` shows it",
    "exchanges create x --type fanuot": "unknown exchange type 'fanuot'; did you mean 'fanout'?",
    "exchanges create x --type star": "unknown exchange type 'star'; there are direct, fanout, ",
    "exchanges delete amq.topic": "exchange 'amq.topic' is the gateway's own",
    "queues list -p /": "there is no option '-p'; did you mean '--vhost'? `penstock queues list --help`",
    "sub --topic QUEUE": "there is no option '--topic'; did you mean '--subscription'?",
    "pub --queue QUEUE --header =x y": "a header is NAME=VALUE, not '=x'",
}
"""Command line -> words of its error."""


@pytest.mark.parametrize("line", MISTAKES)
def test_a_wrong_value_is_said_in_our_words(run: Run, line: str, unique: str) -> None:
    run("queues", "create", unique)
    run(*(unique if word == "QUEUE" else word for word in line.split()), code=run_code(line))
    assert MISTAKES[line].replace("QUEUE", unique) in run.errors and run.errors.count("\n") == 1
    assert "<<" not in run.errors + run("audit", "list"), "a term of Erlang"


def run_code(line: str) -> int:
    """2 when the words are wrong, 1 when what they ask for is refused."""
    return 2 if "did you mean '--" in MISTAKES[line] else 1


# Files


def test_definitions_are_read_from_standard_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    queue = {"name": unique, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    for words in (("definitions", "import", "-"), ("rabbitmqctl", "import_definitions", "-")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"queues": [queue]})))
        run(*words)
        assert unique in run("queues", "list")
        run("queues", "delete", unique)
    assert json.loads(run("definitions", "export", "-")) == json.loads(run("definitions", "export"))
    assert not Path("-").exists()


# RabbitMQ's tools


def test_rabbitmqctl_says_which_vhost_is_missing_and_wants_a_password(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("list_queues", "list_bindings", "list_exchanges", "list_consumers", "list_policies"):
        run("rabbitmqctl", "-q", verb, "-p", "nowhere", code=67)
        assert run.errors == "Error:\nVirtual host 'nowhere' does not exist\n", verb
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    run("rabbitmqctl", "add_user", "joe", code=70)
    assert run.errors == "Error:\nPassword is not provided via argument or stdin\n"
    assert "joe" not in run("users", "list")
