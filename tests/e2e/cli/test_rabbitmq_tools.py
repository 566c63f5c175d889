"""`penstock rabbitmqctl` and `rabbitmq-diagnostics`: help, formats, checks, waiting.

Texts and exit codes are those that RabbitMQ 3.10.8's tools printed for the same, where both have the thing.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.rabbitmqctl import VERBS, checks
from tests.support.brokers import ROOT, Gateway, free_port
from tests.support.commands import Run
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

CTL, DIAGNOSTICS = "rabbitmqctl", "rabbitmq-diagnostics"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("tools"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def run(gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    return Run(capsys)


@pytest.fixture
def api(gateway: Gateway) -> Iterator[Api]:
    api = Api(gateway)
    yield api
    api.close()


@pytest.fixture
def node(api: Api) -> str:
    name: str = api.get("overview")["node"]
    return name


# Help


@pytest.mark.parametrize(("tool", "verbs"), [(CTL, VERBS), (DIAGNOSTICS, checks.VERBS)])
def test_every_verb_is_in_the_help_and_has_its_own(run: Run, tool: str, verbs: dict[str, object]) -> None:
    whole = run(tool, "help")
    assert whole == run(tool) == run(tool, "--help") == run("help", tool)
    for name in verbs:
        assert re.search(rf"^   {name} ", whole, re.MULTILINE), name
        told = run(tool, "help", name)
        assert f"penstock {tool} [--url <url>] [--quiet] {name}" in told
        assert told == run(tool, name, "--help")
    run(tool, "help", "list_queus", code=64)
    assert "did you mean 'list_queues'?" in run.errors


def test_the_help_of_a_list_names_its_columns(run: Run) -> None:
    assert "\tmust be one of arguments, auto_delete, " in run(CTL, "help", "list_queues")


def test_a_verb_needs_the_words_of_its_usage(run: Run) -> None:
    for words in (("set_permissions", "u"), ("enable_feature_flag",), ("purge_queue", "-p", "/")):
        run(CTL, *words, code=64)
        assert f"not enough arguments. Usage: penstock rabbitmqctl {words[0]} " in run.errors


# Formats


def test_the_formats_of_tables(run: Run, unique: str) -> None:
    name = f'{unique} "2,x'
    run("queues", "create", name, "--arguments", '{"x-max-length": 9}')
    asked = (CTL, "list_queues", "name", "messages", "arguments", "--formatter")
    # As there, a JSON or CSV answer comes alone, and CSV has its headers also with --silent.
    for more in ((), ("--silent",)):
        assert list(csv.reader(io.StringIO(run(*asked, "csv", *more)))) == [
            ["name", "messages", "arguments"],
            [name, "0", '[{"x-max-length",9}]'],
        ]
    assert run(*asked, "csv", "--no-table-headers").startswith(f'"{unique} ""2,x","0",')
    assert json.loads(run(*asked, "json")) == [
        {"name": name, "messages": 0, "arguments": {"x-max-length": 9}}
    ]
    assert run(*asked[:-2], "--formatter", "pretty_table", "-q").splitlines() == [
        f"┌─{'─' * len(name)}─┬──────────┐",
        f"│ name{' ' * (len(name) - 4)} │ messages │",
        f"├─{'─' * len(name)}─┼──────────┤",
        f"│ {name} │ 0        │",
        f"└─{'─' * len(name)}─┴──────────┘",
    ]
    assert run(*asked[:-2], "-q") == f"name\tmessages\n{name}\t0\n"
    assert run(*asked[:-2], "-s") == run(*asked[:-2], "-q", "--no-table-headers") == f"{name}\t0\n"
    run(*asked, "erlang", code=64)
    assert "pretty_table" in run.errors
    run("queues", "delete", name)
    for form in ("table", "csv", "pretty_table"):
        assert run(CTL, "-q", "list_queues", "--formatter", form) == ""


# The whole


def test_the_state_of_the_gateway(run: Run, gateway: Gateway, api: Api, node: str) -> None:
    status = json.loads(run(CTL, "status", "--formatter", "json"))
    assert status["pid"] == gateway.pid and status["data_directory"] == str(gateway.data_dir)
    assert status["totals"]["virtual_host_count"] == 1 and status["alarms"] == []
    text = run(CTL, "status")
    assert f"OS PID: {gateway.pid}\n" in text and "\nAlarms\n\n(none)\n" in text
    listener = f"interface: 127.0.0.1, port: {gateway.amqp_port}, protocol: amqp"
    assert f"\nI{listener[1:]}, purpose: AMQP 0-9-1 and AMQP 1.0\n" in text
    assert text.startswith(f"Status of node {node} ...\nRuntime\n")
    cluster = json.loads(run(CTL, "cluster_status", "--formatter", "json"))
    assert cluster["running_nodes"] == cluster["disk_nodes"] == [node] and cluster["partitions"] == {}
    assert {one["port"] for one in cluster["listeners"][node]} >= {gateway.amqp_port, gateway.mqtt_port}
    text = run(DIAGNOSTICS, "cluster_status")
    assert f"\nRunning Nodes\n\n{node}\n" in text and f"Node: {node}, {listener}, " in text
    version = run(CTL, "version")
    assert version == run(DIAGNOSTICS, "-q", "server_version")
    assert version.strip() == api.get("version")
    environment = json.loads(run(CTL, "environment", "--formatter", "json"))["penstock"]
    assert environment["data_dir"] == str(gateway.data_dir)
    assert f"data_dir = {json.dumps(environment['data_dir'])}\n" in run(CTL, "environment")
    report = run(CTL, "report")
    for part in (f"Status of node {node}", f"Cluster status of node {node}", "Listing queues for vhost /"):
        assert part in report
    assert (
        json.loads(run(DIAGNOSTICS, "memory_breakdown", "--formatter", "json"))["other_system"]["bytes"] > 0
    )
    assert "http\t" in run(DIAGNOSTICS, "list_node_auth_attempt_stats")


def test_feature_flags_are_listed_and_enabled(run: Run) -> None:
    assert "quorum_queue\tenabled\n" in run(CTL, "list_feature_flags")
    assert '"quorum_queue","stable"\n' in run(
        CTL, "list_feature_flags", "name", "stability", "--formatter", "csv"
    )
    assert run(CTL, "enable_feature_flag", "all") == "Enabling all feature flags ...\n"
    run(CTL, "enable_feature_flag", "quorum_queue")
    run(CTL, "enable_feature_flag", "none_such", code=64)
    assert run.errors == "Error:\nThis feature flag is not supported by this gateway\n"


def test_the_log_level_changes_at_once(run: Run, api: Api, node: str) -> None:
    assert run(CTL, "set_log_level", "debug") == 'Setting log level to "debug" ...\n'
    try:
        assert 'log_level = "debug"\n' in run(CTL, "environment")
    finally:
        run(CTL, "set_log_level", "info")
    assert 'log_level = "info"\n' in run(CTL, "environment")
    run(CTL, "set_log_level", "loud", code=69)
    assert "Try one of debug, info," in run.errors
    assert api.status("PUT", "nodes/other/log-level", {"level": "debug"}) == 404
    assert api.status("PUT", f"nodes/{node}/log-level", {"level": "x"}) == 400


def test_a_verb_that_does_not_exist_here_names_a_remedy(run: Run, gateway: Gateway) -> None:
    run(CTL, "stop", code=69)
    assert f"`kill {gateway.pid}`" in run.errors and "stop_app" in run.errors
    run(CTL, "set_disk_free_limit", "1GB", code=69)
    assert "log.min_free_bytes" in run.errors
    assert "Nothing to rotate" in run(CTL, "rotate_logs")


def test_tags_of_vhosts_and_connections_of_users(run: Run, api: Api) -> None:
    run(CTL, "set_vhost_tags", "/", "a", "b")
    assert api.get("vhosts/%2F")["tags"] == ["a", "b"]
    run(CTL, "set_vhost_tags", "nowhere", "a", code=67)
    run(CTL, "close_all_user_connections", "guest", "night")


def test_global_parameters(run: Run, unique: str) -> None:
    run(CTL, "set_global_parameter", unique, '{"a": [1]}')
    assert f'{unique}\t{{"a": [1]}}\n' in run(CTL, "list_global_parameters")
    found = json.loads(run(DIAGNOSTICS, "list_global_parameters", "--formatter", "json"))
    assert {"name": unique, "value": {"a": [1]}} in found
    run(CTL, "clear_global_parameter", unique)
    assert unique not in run(CTL, "list_global_parameters")
    run(CTL, "clear_global_parameter", unique, code=69)
    assert run.errors == "Error:\nParameter does not exist\n"
    run(CTL, "set_global_parameter", unique, "{", code=64)
    assert run(CTL, "-q", "list_parameters") == ""


def test_options_of_rabbitmqs_lists_and_vhosts(run: Run, api: Api, unique: str) -> None:
    run(CTL, "add_vhost", unique, "--default-queue-type", "quorum")
    assert api.get(f"vhosts/{unique}")["default_queue_type"] == "quorum"
    run("queues", "create", "q", "--vhost", unique, code=1)
    assert "penstock users grant" in run.errors, "as there, a new vhost is shut to all"
    run(CTL, "set_permissions", "-p", unique, "guest", ".*", ".*", ".*")
    run("queues", "create", "q", "--vhost", unique)
    asked = (CTL, "-s", "list_queues", "-p", unique, "name")
    assert run(*asked, "--online") == run(*asked, "--local") == "q\n"
    assert run(*asked, "--offline") == ""
    run(CTL, "delete_vhost", unique)


# Waiting


def test_waiting_for_a_gateway(
    run: Run, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "penstock.pid"
    run(CTL, "wait", str(file), "-t", "0.2", code=75)
    assert "operation wait timed out. Timeout value used: 200" in run.errors
    file.write_text(f"{gateway.pid}\n")
    assert "is running\n" in run(CTL, "wait", str(file))
    run(CTL, "wait", code=64)
    assert "No pid or pidfile specified" in run.errors
    run(CTL, "await_startup")
    run(CTL, "await_online_nodes", "1")
    run(CTL, "await_online_nodes", "2", "-t", "0.2", code=75)
    run(CTL, "await_startup", "-t", "soon", code=64)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    run(CTL, "wait", "--pid", str(ended.pid), code=69)
    assert run.errors == "Error:\nprocess_not_running\n"
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{free_port()}")
    run(CTL, "wait", "--pid", str(gateway.pid), "-t", "0.2", code=75)
    run(CTL, "ping", code=69)


def test_await_startup_ends_when_the_gateway_has_started(tmp_path: Path) -> None:
    port = free_port()
    environment = {**os.environ, "PENSTOCK_URL": f"http://guest:guest@127.0.0.1:{port}"}
    words = [sys.executable, "-m", "penstock", CTL, "await_startup", "-t", "120"]
    with subprocess.Popen(words, env={**environment, "PYTHONPATH": str(ROOT / "src")}) as waiting:
        with Gateway(tmp_path, settings={"management.listen": f"127.0.0.1:{port}"}):
            assert waiting.wait(120) == 0


# Checks


def test_checks_of_a_healthy_gateway_pass(run: Run, gateway: Gateway, node: str) -> None:
    for words, told in (
        (("check_running",), f"RabbitMQ on node {node} is fully booted and running"),
        (("is_running",), f"RabbitMQ on node {node} is fully booted and running"),
        (("check_alarms",), f"Node {node} reported no alarms, local or clusterwide"),
        (("check_local_alarms",), f"Node {node} reported no local alarms"),
        (("alarms",), f"Node {node} reported no alarms, local or clusterwide"),
        (("check_virtual_hosts",), f"Node {node} reported all vhosts as running"),
        (("check_certificate_expiration", "--within", "2"), "No certificates are expiring within 2 weeks."),
        (
            ("check_port_listener", str(gateway.amqp_port)),
            f"A listener for port {gateway.amqp_port} is running on node {node}.",
        ),
        (("check_protocol_listener", "mqtt"), f"A listener for protocol mqtt is running on node {node}."),
        (("ping",), "Ping succeeded"),
    ):
        # As there, -q and -s leave the verdict.
        assert run(DIAGNOSTICS, "-q", *words) == run(DIAGNOSTICS, "-s", *words) == f"{told}\n"
        loud = run(DIAGNOSTICS, *words)
        assert loud.endswith(f" ...\n{told}\n") or words == ("ping",)
    ports = run(DIAGNOSTICS, "-q", "check_port_connectivity")
    assert ports.startswith("Successfully connected to ports ") and str(gateway.amqp_port) in ports
    for check in (
        "check_if_node_is_quorum_critical",
        "check_if_node_is_mirror_sync_critical",
        "node_health_check",
    ):
        assert json.loads(run(DIAGNOSTICS, check, "--formatter", "json"))["result"] == "ok"
    assert json.loads(run(DIAGNOSTICS, "is_booting", "--formatter", "json"))["result"] is False
    listed = json.loads(run(DIAGNOSTICS, "listeners", "--formatter", "json"))["listeners"]
    assert gateway.amqp_port in {one["port"] for one in listed}
    assert f"port: {gateway.amqp_port}, protocol: amqp" in run(DIAGNOSTICS, "listeners")
    assert run(DIAGNOSTICS, "-q", "log_location") == "<stderr>\n"


def test_checks_fail_with_69_and_the_reason(run: Run, node: str) -> None:
    run(DIAGNOSTICS, "check_port_listener", "1", code=69)
    assert f"No listener for port 1 is active on node {node}. Found listeners that use" in run.errors
    run(DIAGNOSTICS, "check_protocol_listener", "stomp", "--formatter", "json", code=69)
    assert json.loads(run.errors)["result"] == "error"
    run(DIAGNOSTICS, "check_port_listener", "amqp", code=64)
    run(DIAGNOSTICS, "add_user", "x", "y", code=64)


def test_an_alarm_is_told(run: Run, api: Api, node: str) -> None:
    run(CTL, "set_vm_memory_high_watermark", "0.0000001")
    try:
        until(lambda: api.get(f"nodes/{node}")["mem_alarm"])
        for check in ("check_local_alarms", "check_alarms"):
            run(DIAGNOSTICS, check, code=69)
            assert run.errors == f"Error:\nMemory alarm on node {node}\n"
        assert run(DIAGNOSTICS, "-q", "alarms") == f"Memory alarm on node {node}\n"
        assert f"\nAlarms\n\nMemory alarm on node {node}\n" in run(CTL, "cluster_status")
    finally:
        run(CTL, "set_vm_memory_high_watermark", "absolute", "1TiB")
    until(lambda: not api.get(f"nodes/{node}")["mem_alarm"])
    run(DIAGNOSTICS, "check_alarms")


def test_checks_of_a_stopped_application_fail(run: Run) -> None:
    run(CTL, "stop_app")
    try:
        for check in ("check_running", "check_port_connectivity", "check_virtual_hosts"):
            run(DIAGNOSTICS, check, code=69)
            assert "is not running" in run.errors and "start_app" in run.errors
        assert "is not running" in run(DIAGNOSTICS, "is_running")
        run(CTL, "await_startup", "-t", "0.2", code=75)
    finally:
        run(CTL, "start_app")
    run(DIAGNOSTICS, "check_running")
