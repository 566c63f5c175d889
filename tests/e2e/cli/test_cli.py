"""Commands about a running gateway: noun and verb, and rabbitmqctl's verbs beside the record of it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pika
import pytest

from tests.compare.rabbitmqctl import declare, recorded
from tests.support.brokers import Gateway
from tests.support.commands import run_here
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("commanded"), settings=SETTINGS) as running:
        yield running


def penstock(
    gateway: Gateway | None, *words: str, code: int = 0, text: str = "", url: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command; it must end with `code`."""
    if gateway is not None:
        url = f"http://guest:guest@127.0.0.1:{gateway.ports['management']}"
    done = run_here(*words, text=text, environment={"PENSTOCK_URL": url})
    assert done.returncode == code, (words, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def test_things_are_made_listed_and_deleted(gateway: Gateway) -> None:
    penstock(gateway, "queues", "create", "cli-q", "--type", "quorum", "--arguments", '{"x-max-length": 5}')
    penstock(gateway, "policies", "create", "cli-p", "^cli-", '{"message-ttl": 1000}', "--priority", "2")
    table = penstock(gateway, "queues", "list", "--columns", "name,type,policy,messages").stdout.splitlines()
    assert table[0].split() == ["NAME", "TYPE", "POLICY", "MESSAGES"]
    assert "cli-q  quorum  cli-p   0" in table
    (queue,) = json.loads(penstock(gateway, "queues", "list", "-o", "json", "--columns", "name").stdout)
    assert queue == {"name": "cli-q"}
    shown = json.loads(penstock(gateway, "queues", "show", "cli-q", "-o", "json").stdout)
    assert shown["arguments"]["x-max-length"] == 5
    penstock(gateway, "users", "create", "cli-u", "--tags", "monitoring", text="secret\n")
    penstock(gateway, "users", "grant", "cli-u", "^a", "^b", "^c")
    assert "cli-u  /      ^a         ^b     ^c" in penstock(gateway, "users", "permissions").stdout
    penstock(gateway, "vhosts", "create", "cli v", "--description", "of the command")
    assert "of the command" in penstock(gateway, "vhosts", "list").stdout
    for words in (
        ("vhosts", "delete", "cli v"),
        ("users", "revoke", "cli-u"),
        ("users", "delete", "cli-u"),
        ("policies", "delete", "cli-p"),
        ("queues", "purge", "cli-q"),
        ("queues", "delete", "cli-q"),
    ):
        penstock(gateway, *words)
    assert "cli-q" not in penstock(gateway, "queues", "list").stdout
    assert "0 connections" in penstock(gateway, "top", "--once").stdout


def test_tokens_and_limits(gateway: Gateway) -> None:
    penstock(gateway, "users", "create", "cli-t", text="secret\n")
    made = json.loads(penstock(gateway, "tokens", "create", "ci", "--user", "cli-t", "-o", "json").stdout)
    assert made["token"].startswith("pst_") and made["expires_at"] - made["made_at"] == 30 * 86_400_000
    assert "ci" in penstock(gateway, "tokens", "list", "--user", "cli-t").stdout
    assert "ci" not in penstock(gateway, "tokens", "list").stdout
    penstock(gateway, "tokens", "revoke", "ci", "--user", "cli-t")
    gone = penstock(gateway, "tokens", "revoke", "ci", "--user", "cli-t", code=1)
    assert "no token 'ci'" in gone.stderr
    for kind, name, limit in (("users", "cli-t", "max-channels"), ("vhosts", "/", "max-queues")):
        penstock(gateway, kind, "limit", name, limit, "900")
        assert "900" in penstock(gateway, kind, "limits").stdout
        penstock(gateway, kind, "unlimit", name, limit)
        assert "900" not in penstock(gateway, kind, "limits").stdout
    penstock(gateway, "users", "delete", "cli-t")


def test_definitions_leave_and_come_back(gateway: Gateway, tmp_path: Path) -> None:
    penstock(gateway, "queues", "create", "kept")
    file = tmp_path / "definitions.json"
    penstock(gateway, "definitions", "export", str(file))
    penstock(gateway, "queues", "delete", "kept")
    penstock(gateway, "definitions", "import", str(file))
    assert "kept" in penstock(gateway, "queues", "list").stdout
    penstock(gateway, "queues", "delete", "kept")
    penstock(gateway, "definitions", "export", str(file))
    whole = json.loads(file.read_text())
    whole["queues"].append(
        {"vhost": "/", "name": "more", "durable": True, "auto_delete": False, "arguments": {}}
    )
    file.write_text(json.dumps({**whole, "unheard": []}))
    told = penstock(gateway, "definitions", "import", "--dry-run", str(file)).stdout.splitlines()
    assert [line.split() for line in told] == [
        ["WHAT", "LIST", "THING", "DIFFERS"],
        ["create", "queues", "vhost=/", "name=more"],
        ["ignore", "unheard"],
    ]
    assert "more" not in penstock(gateway, "queues", "list").stdout
    file.write_text("{")
    assert "it is not JSON" in penstock(gateway, "definitions", "import", str(file), code=2).stderr


def test_an_error_is_one_line_with_the_remedy(gateway: Gateway) -> None:
    nowhere = penstock(gateway, "queues", "list", "--vhost", "nope", code=1).stderr
    assert nowhere.startswith("penstock: error: there is no vhost 'nope'; ") and nowhere.count("\n") == 1
    assert "no password for user 'guest'" in penstock(gateway, "users", "create", "guest", code=1).stderr
    missing = penstock(gateway, "queues", "show", "none", code=1).stderr
    assert missing.startswith("penstock: error: there is no queue 'none' in vhost '/'; ")
    assert missing.count("\n") == 1
    assert "no policy 'x' in vhost '/'" in penstock(gateway, "policies", "delete", "x", code=1).stderr
    unknown = penstock(gateway, "users", "list", "--columns", "name,nope", code=2).stderr
    assert "no column 'nope'; there are hashing_algorithm, limits, name" in unknown
    nobody = f"http://nobody:x@127.0.0.1:{gateway.ports['management']}"
    refused = penstock(None, "queues", "list", code=1, url=nobody).stderr
    assert "user 'nobody' cannot log in" in refused and "PENSTOCK_USER" in refused
    lost = penstock(gateway, "pub", "--queue", "nowhere", "x", code=1).stderr
    assert "there is no queue 'nowhere' in vhost '/'" in lost
    silent = penstock(None, "queues", "list", code=1, url="http://127.0.0.1:9").stderr
    assert silent.startswith("penstock: error: no answer from the management API at 127.0.0.1:9")
    assert "penstock serve" in silent and "--url" in silent and silent.count("\n") == 1


# rabbitmqctl


def test_verbs_print_what_rabbitmqctl_prints(gateway: Gateway) -> None:
    """The record of Debian's rabbitmqctl; rows in any order, for RabbitMQ has none."""
    declare(gateway)
    for words, wanted in recorded():
        got = penstock(gateway, "rabbitmqctl", "-q", *words).stdout
        assert sorted(got.splitlines()) == sorted(wanted.splitlines()), words


def test_connections_are_closed_by_name_and_all_at_once(gateway: Gateway) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    first, second = pika.BlockingConnection(parameters), pika.BlockingConnection(parameters)
    ctl = ("rabbitmqctl", "-s")
    names = penstock(gateway, *ctl, "list_connections", "name").stdout.splitlines()
    assert len(names) == 2
    penstock(gateway, *ctl, "close_connection", names[0], "maintenance")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="maintenance"):
        first.process_data_events(time_limit=10)
    penstock(gateway, *ctl, "close_all_connections", "good night")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="good night"):
        second.process_data_events(time_limit=10)


def test_rabbitmqctls_mistakes_have_its_exit_codes(gateway: Gateway) -> None:
    ctl = ("rabbitmqctl", "-q")
    assert "not found" in penstock(gateway, *ctl, "make_coffee", code=64).stderr
    assert "not enough arguments" in penstock(gateway, *ctl, "set_permissions", "x", code=64).stderr
    for verb in ("list_queues", "list_connections", "list_consumers", "list_exchanges"):
        told = penstock(gateway, *ctl, verb, "nope", code=64).stderr
        assert told.startswith("Error (argument validation): Info key(s) nope are not supported")
    penstock(gateway, *ctl, "list_queues", "name", "memory", "slave_pids", "messages_ram")
    assert 'User "nobody" does not exist' in penstock(gateway, *ctl, "delete_user", "nobody", code=67).stderr
    penstock(gateway, *ctl, "trace_on", "-p", "nowhere", code=67)
    penstock(None, *ctl, "list_queues", code=69, url="http://127.0.0.1:9")
    users = json.loads(penstock(gateway, *ctl, "list_users", "--formatter", "json").stdout)
    assert users == [{"user": "guest", "tags": ["administrator"]}]
    assert "penstock version" in penstock(gateway, *ctl, "status").stdout


def test_rabbitmqctls_verbs_about_logins_and_limits(gateway: Gateway) -> None:
    """In the words that RabbitMQ 3.10's rabbitmqctl printed for the same."""

    def ctl(*words: str, code: int = 0) -> str:
        return penstock(gateway, "rabbitmqctl", *words, code=code).stdout

    said = "to some virtual hosts! See 'rabbitmqctl help set_permissions' to learn more.\n"
    done = f"Done. Don't forget to grant the user permissions {said}"
    assert ctl("add_user", "lim", "secret") == f'Adding user "lim" ...\n{done}'
    assert ctl("add_user", "lim", "secret", code=70) == 'Adding user "lim" ...\n'
    assert ctl("authenticate_user", "lim", "secret") == 'Authenticating user "lim" ...\nSuccess\n'
    refused = penstock(gateway, "rabbitmqctl", "authenticate_user", "lim", "wrong", code=65).stderr
    assert 'failed to authenticate user "lim"' in refused
    ctl("clear_password", "lim")
    ctl("authenticate_user", "lim", "secret", code=65)
    ctl("set_topic_permissions", "lim", "amq.topic", "^a", "^b")
    assert ctl("-s", "list_user_topic_permissions", "lim") == "/\tamq.topic\t^a\t^b\n"
    ctl("set_user_limits", "lim", '{"max-channels": 7, "max-message-rate": 9}')
    assert json.loads(ctl("-q", "list_user_limits", "--user", "lim")) == {
        "max-channels": 7,
        "max-message-rate": 9,
    }
    ctl("clear_user_limits", "lim", "max-channels")
    assert json.loads(ctl("-q", "list_user_limits", "--user", "lim")) == {"max-message-rate": 9}
    ctl("clear_user_limits", "lim", "all")
    assert json.loads(ctl("-q", "list_user_limits", "--user", "lim")) == {}
    ctl("set_vhost_limits", '{"max-connections": 1000}')
    assert json.loads(ctl("-q", "list_vhost_limits")) == {"max-connections": 1000}
    assert ctl("-s", "list_vhost_limits", "--global") == '/\t{"max-connections":1000}\n'
    ctl("clear_vhost_limits")
    ctl("add_vhost", "strange")
    said = 'with priority "0" for vhost "strange"'
    policy = ctl("set_policy", "-p", "strange", "p", "^q", '{"max-length":5}')
    assert policy == f'Setting policy "p" for pattern "^q" to "{{"max-length":5}}" {said} ...\n'
    ctl("clear_policy", "-p", "strange", "p")
    missing = penstock(gateway, "rabbitmqctl", "clear_policy", "-p", "strange", "p", code=69)
    assert missing.stderr == "Error:\nParameter does not exist\n"
    missing = penstock(gateway, "rabbitmqctl", "delete_queue", "gone", code=64)
    assert (missing.stdout, missing.stderr) == (
        "Deleting queue 'gone' on vhost '/' ...\n",
        "Error:\nQueue not found\n",
    )
    ctl("delete_vhost", "strange")
    missing = penstock(gateway, "rabbitmqctl", "set_permissions", "-p", "nov", "lim", "", "", "", code=69)
    assert missing.stderr == "Error:\nVirtual host nov does not exist\n"
    ctl("delete_user", "lim")


def test_stop_app_ends_clients_and_keeps_what_the_broker_has(gateway: Gateway) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    ctl = ("rabbitmqctl", "-q")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("stopped", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "stopped", b"kept")
    assert "Stopping rabbit application" in penstock(gateway, "rabbitmqctl", "stop_app").stdout
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=60)
    assert closed.value.reply_code == 320
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", gateway.mqtt_port), timeout=60)
    assert penstock(gateway, *ctl, "stop_app").stdout == "", "what is stopped stays so"
    rows = penstock(gateway, *ctl, "list_queues", "name", "messages").stdout.splitlines()
    assert "stopped\t1" in rows, "the management API goes on"
    health = f"http://127.0.0.1:{gateway.ports['management']}/api/health/checks/"
    for check in ("is-in-service", "ready-to-serve-clients", "protocol-listener/amqp"):
        assert httpx.get(health + check, auth=("guest", "guest"), timeout=60).status_code == 503, check
    penstock(gateway, *ctl, "start_app")
    for check in ("is-in-service", "ready-to-serve-clients", "protocol-listener/amqp"):
        assert httpx.get(health + check, auth=("guest", "guest"), timeout=60).status_code == 200, check
    socket.create_connection(("127.0.0.1", gateway.mqtt_port), timeout=60).close()
    with pika.BlockingConnection(parameters) as again:
        assert again.channel().basic_get("stopped", auto_ack=True)[2] == b"kept"


def test_the_memory_watermark_blocks_publishers_until_it_is_raised(gateway: Gateway) -> None:
    told: list[str] = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        connection.add_on_connection_blocked_callback(lambda *_: told.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        channel = connection.channel()
        channel.queue_declare("watermark", durable=True)
        for words, wanted in ((("0.0000001",), "blocked"), (("absolute", "1TiB"), "unblocked")):
            penstock(gateway, "rabbitmqctl", "-q", "set_vm_memory_high_watermark", *words)
            ends = time.monotonic() + 60
            while told[-1:] != [wanted]:
                assert time.monotonic() < ends, told
                if not told:
                    channel.basic_publish("", "watermark", b"x")  # who publishes is told
                connection.process_data_events(time_limit=0.05)
    status = json.loads(penstock(gateway, "rabbitmqctl", "status", "--formatter", "json").stdout)
    assert status["vm_memory_high_watermark_limit"] == 2**40
    penstock(gateway, "rabbitmqctl", "set_vm_memory_high_watermark", "much", code=64)
    penstock(gateway, "rabbitmqctl", "set_vm_memory_high_watermark", "absolute", "much", code=64)
    penstock(gateway, "rabbitmqctl", "set_vm_memory_high_watermark", "2", code=70)
