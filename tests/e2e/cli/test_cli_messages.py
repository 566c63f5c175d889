"""Commands that move messages, and those about the installation itself."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from penstock.cli.commands import GROUPS
from penstock.cli.parsing import parser_of
from tests.support.brokers import ROOT, Gateway
from tests.support.commands import Run
from tests.support.data_plane import until
from tests.support.managed import ALL_SETTINGS, all_kinds
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about the command penstock")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("commanded"), settings=ALL_SETTINGS) as running:
        yield running


@pytest.fixture
def run(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    yield Run(capsys)


def test_a_topic_its_subscriptions_and_its_messages(run: Run, unique: str) -> None:
    run("topics", "create", unique, "--max-age", "7D")
    assert f"{unique}  " in run("topics", "list")
    assert run.json("topics", "show", unique)["max_age"] == "7D"
    run("pub", "--topic", unique, "--key", "k", "--header", "shop=north", "a", "b", "c")
    run("subs", "create", f"{unique}/s", "--start", "earliest")
    first = run("sub", "--subscription", f"{unique}/s", "--max", "2")
    assert first.split() == ["a", "b"]
    assert run.json("subs", "show", f"{unique}/s")["acknowledged"] == 2
    (whole,) = run("sub", "--subscription", f"{unique}/s", "--drain", "--json").splitlines()
    assert (json.loads(whole)["key"], json.loads(whole)["headers"]["shop"]) == ("k", "north")
    run("subs", "pause", f"{unique}/s")
    assert run.json("subs", "list", unique, "--columns", "name,paused") == [{"name": "s", "paused": True}]
    run("subs", "resume", f"{unique}/s")
    run("subs", "seek", f"{unique}/s", "earliest")
    assert run("sub", "--subscription", f"{unique}/s", "--drain").split() == ["a", "b", "c"]
    assert run("tail", "--topic", unique, "--from", "first", "--max", "3").split() == ["a", "b", "c"]
    assert run.json("subs", "list", unique, "--columns", "name,kind") == [{"name": "s", "kind": "shared"}]
    run("subs", "delete", f"{unique}/s")
    run("topics", "delete", unique)
    assert run("topics", "show", unique, code=1) == ""


def test_search_prints_what_it_finds(run: Run, unique: str) -> None:
    run("queues", "create", unique)
    run("pub", "--queue", unique, "--header", "shop=north", "a", "b", "c")
    run("pub", "--queue", unique, "--header", "shop=south", "d")
    assert run("search", "--queue", unique, "--header", "shop=north").split() == ["a", "b", "c"]
    assert run("search", "--queue", unique, "--from", "first", "--max", "2").split() == ["a", "b"]
    assert run("search", "--queue", unique, "--contains", "d").split() == ["d"]
    assert run("search", "--exchange", "amq.default", "--pattern", unique, "--to", "-1h") == ""
    (whole,) = run("search", "--queue", unique, "--contains", "d", "--json").splitlines()
    assert json.loads(whole)["headers"] == {"shop": "south"}
    run("search", "--queue", unique, "--from", "yesterday", code=1)


def test_lines_of_standard_input_are_published(
    run: Run, gateway: Gateway, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("queues", "create", unique)
    monkeypatch.setattr(sys, "stdin", iter(f"{n}\n" for n in range(1200)))
    run("pub", "--queue", unique)
    assert run("sub", "--queue", unique, "--drain").split() == [str(n) for n in range(1200)]
    run("pub", "--queue", f"{unique}-none", "x", code=1)
    run("pub", "--exchange", "amq.direct", "--routing-key", unique, "--json", '{"value": 1}')


def test_dead_letters_are_listed_and_go_back_where_they_came_from(
    run: Run, gateway: Gateway, unique: str
) -> None:
    dead = f"{unique}.dead"
    run("queues", "create", dead)
    arguments = json.dumps({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    run("queues", "create", unique, "--arguments", arguments)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for n in range(3):
            channel.basic_publish("", unique, b"%d" % n, pika.BasicProperties(message_id=f"m{n}"))
            method, _, _ = channel.basic_get(unique)
            channel.basic_reject(method.delivery_tag, requeue=False)
        channel.basic_publish("", dead, b"no dead letter")
    ends = time.monotonic() + 60
    listed = {"messages": 0}
    while listed["messages"] < 4:
        assert time.monotonic() < ends
        (listed,) = [one for one in run.json("dlq", "list") if one["name"] == dead]
    assert listed["from"] == unique
    peeked = run.json("dlq", "peek", dead, "--columns", "value,queue,reason")
    assert sorted(peeked, key=lambda one: str(one["value"])) == [
        *({"value": str(n), "queue": unique, "reason": "rejected"} for n in range(3)),
        {"value": "no dead letter", "queue": None, "reason": None},
    ]
    assert run("dlq", "redrive", dead, "--dry-run").count(unique) == 3
    assert run("dlq", "redrive", dead, "--reason", "expired") == "0 redriven, 4 left\n"
    assert run("dlq", "redrive", dead) == "3 redriven, 1 left\n"
    back = [json.loads(line) for line in run("sub", "--queue", unique, "--drain", "--json").splitlines()]
    assert [(one["value"], one["message_id"], one["headers"]) for one in back] == [
        (str(n), f"m{n}", {}) for n in range(3)
    ]
    assert run("dlq", "redrive", dead, "--to", unique) == "1 redriven, 0 left\n"


def test_a_tail_of_an_exchange_ends_with_its_count(gateway: Gateway, unique: str) -> None:
    words = ["tail", "--exchange", "amq.topic", "--pattern", f"{unique}.#", "--max", "2"]
    url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PENSTOCK_URL": url}
    tail = subprocess.Popen(
        [sys.executable, "-m", "penstock", *words], env=environment, stdout=subprocess.PIPE, text=True
    )
    api = Api(gateway)
    body = {"routing_key": f"{unique}.a", "payload": "x", "payload_encoding": "string", "properties": {}}
    while tail.poll() is None:
        # Until it listens nothing is for it.
        api.send("POST", "exchanges/%2F/amq.topic/publish", body)
    api.close()
    assert tail.stdout is not None and tail.stdout.read().split() == ["x", "x"]
    tail.stdout.close()
    assert tail.returncode == 0


def test_bench_prints_what_it_measured_and_leaves_nothing_behind(run: Run) -> None:
    published, pulled = run.json("bench", "--messages", "1500")
    for row in (published, pulled):
        assert row["messages"] == 1500 and row["messages_per_s"] > 0 and row["p99_ms"] >= row["p50_ms"] > 0
    assert "penstock-bench" not in run("queues", "list")


def test_doctor_finds_nothing_wrong_with_the_defaults_and_names_what_is(
    run: Run, gateway: Gateway, tmp_path: Path, unique: str
) -> None:
    run("queues", "create", unique)
    run("pub", "--queue", unique, "x")
    data = ("--data", str(tmp_path / "data"))
    healthy = run("doctor", *data)
    assert "0 errors" in healthy and "answers" in healthy
    assert f"queue {unique}: 1 message and no consumer" in healthy
    sets = [
        "log.fsync=never",
        "amqp.listen=0.0.0.0:5672",
        "auth.loopback_users=[]",
        "mqtt.allow_anonymous=true",
        "mqtt.allow_any_login=true",
        "amqp.allow_anonymous=true",
    ]
    words = [word for one in sets for word in ("--set", one)]
    sick = run("doctor", *data, *words, "--url", "http://127.0.0.1:1", code=1)
    guards = (
        "auth.default_password",
        "amqp.allow_anonymous",
        "mqtt.allow_anonymous",
        "mqtt.allow_any_login",
    )
    for option in ("log.fsync", "amqp.listen", *guards):
        assert f"error: {option}: " in sick
    assert "no gateway was asked" in sick


def test_every_command_is_in_the_completions_of_all_shells(run: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        text = run("completion", shell)
        for word in ("serve", "topics", "redrive", "rabbitmqctl", "doctor"):
            assert word in text


def test_unroutable_messages_are_reported(run: Run, unique: str) -> None:
    words = ("pub", "--exchange", "amq.topic", "--routing-key", unique, "a", "b")
    assert run(*words) == ""
    assert "2 of the messages reached no queue" in run.errors and "'amq.topic'" in run.errors
    run(*words, "--mandatory", code=1)
    assert f"with key '{unique}'" in run.errors
    for more in ((), ("--mandatory",)):
        run("pub", "--queue", unique, "a", *more, code=1)
        assert f"there is no queue '{unique}'" in run.errors
        run("pub", "--topic", unique, "a", *more, code=1)
        assert f"there is no topic '{unique}'" in run.errors


def test_an_exchange_is_made_bound_and_deleted(run: Run, unique: str) -> None:
    run("exchanges", "create", unique, "--type", "topic")
    assert run.json("exchanges", "show", unique)["type"] == "topic"
    run("queues", "create", unique)
    run("exchanges", "bind", unique, unique, "--routing-key", "a.*/#")
    run("pub", "--exchange", unique, "--routing-key", "a.*/#", "--mandatory", "bound")
    assert run("sub", "--queue", unique, "--drain") == "bound\n"
    run("exchanges", "unbind", unique, unique, "--routing-key", "other", code=1)
    assert "is not bound" in run.errors
    run("exchanges", "unbind", unique, unique, "--routing-key", "a.*/#")
    run("pub", "--exchange", unique, "--routing-key", "a.*/#", "--mandatory", "lost", code=1)
    run("exchanges", "delete", unique)
    run("exchanges", "show", unique, code=1)
    assert f"there is no exchange '{unique}'" in run.errors


SHOWN = {
    "queues": "work",
    "exchanges": "orders",
    "topics": "s",
    "subs": "s/n",
    "webhooks": "w",
    "shovels": "sh",
    "bridges": "plant",
}
"""Noun -> a thing of `all_kinds`."""


def test_each_show_prints_a_table_and_json_when_it_is_asked_for(run: Run, gateway: Gateway) -> None:
    nouns = {noun for noun in GROUPS["a running gateway"] if "show" in parser_of(noun).verbs()}
    assert nouns == {*SHOWN}
    api = Api(gateway)
    with all_kinds(gateway, api):
        for noun, name in SHOWN.items():
            lines = run(noun, "show", name).splitlines()
            assert lines[0].split() == ["KEY", "VALUE"]
            assert lines[1].split() == ["name", name.rpartition("/")[2]]
            assert run.json(noun, "show", name)["name"] == name.rpartition("/")[2]
        shown = re.sub(" +", " ", run("queues", "show", "work"))
        assert "arguments.x-queue-type quorum\n" in shown, "a value inside another one"
        assert "\nconsumer_details:\nARGUMENTS ACK_REQUIRED" in shown, "a table of its own"
    api.close()


def test_tail_begins_where_it_is_told(run: Run, unique: str) -> None:
    run("queues", "create", unique)
    run("pub", "--queue", unique, "queued")
    run("pub", "--exchange", "amq.topic", "--routing-key", f"{unique}.x", "early")
    for words in (
        ("--exchange", "amq.topic", "--pattern", f"{unique}.#"),
        ("--mqtt", f"{unique}/#"),
    ):
        for since in ("first", "-1h"):
            assert run("tail", *words, "--from", since, "--max", "1") == "early\n", (words, since)
        run("tail", *words, "--from", "yesterday", code=1)
        assert "from is" in run.errors


def test_an_interrupted_bench_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while an answer is awaited: the queue goes, and nothing is printed."""
    read, calls = http.client.HTTPConnection.getresponse, []

    def interrupted(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        calls.append(connection)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", interrupted)
    assert run("bench", "--messages", "100000", code=130) == run.errors == ""
    assert len(calls) == 4, "the queue was deleted after it"
    assert "penstock-bench" not in run("queues", "list")


def test_every_command_that_doctor_recommends_works_and_loses_nothing(
    run: Run, gateway: Gateway, unique: str
) -> None:
    api = Api(gateway)
    queue = f"{unique} it's"
    run("queues", "create", queue)
    run("pub", "--queue", queue, "a", "b")
    run("topics", "create", unique)
    run("subs", "create", f"{unique}/s", "--start", "earliest")
    run("pub", "--topic", unique, "c")
    kept = ("-c", "-i", unique, "-q", "1", "-t", f"{unique}/#", "-E")
    subprocess.run(["mosquitto_sub", "-p", str(gateway.mqtt_port), *kept], check=True, timeout=60)
    run("pub", "--exchange", "amq.topic", "--routing-key", f"{unique}.m", "d")

    def backlogs() -> dict[str, int]:
        found = {one["name"]: one["messages_ready"] for one in api.get("queues")}
        return {name: found[name] for name in found if unique in name}

    until(lambda: sorted(backlogs().values()) == [1, 1, 1, 2])
    before = backlogs()
    said = run("doctor", "--data", f"{gateway.folder}/none")
    commands = [shlex.split(text) for text in re.findall(r"`penstock ([^`]*)`", said)]
    ours = [words for words in commands if unique in " ".join(words)]
    assert len(ours) == 3, said
    for words in commands:
        run(*words)
    assert backlogs() == before
    api.close()


def test_an_import_says_what_it_leaves_out(run: Run, tmp_path: Path, unique: str) -> None:
    file = tmp_path / "definitions.json"
    queue = {"name": unique, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    file.write_text(json.dumps({"queues": [queue], "shovel_parts": [{"name": "x"}]}))
    assert "shovel_parts" in run("definitions", "import", str(file), "--dry-run")
    assert unique not in run("queues", "list"), "a dry run"
    assert run("definitions", "import", str(file)) == ""
    assert "left out" in run.errors and "shovel_parts" in run.errors
    assert unique in run("queues", "list")


def test_a_verb_of_rabbitmqctl_that_is_misspelt_gets_the_nearest(run: Run) -> None:
    run("rabbitmqctl", "list_queus", code=64)
    assert "did you mean 'list_queues'?" in run.errors
