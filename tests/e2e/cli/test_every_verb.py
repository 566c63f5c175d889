"""Every verb of every command is run: against one gateway, on copies of its data folder, or by `ELSEWHERE`.

The tables have a line for each verb, in an order in which each finds what it is about. A verb of RabbitMQ's
that has no meaning here ends with its own exit code, which its line says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import parser_of
from penstock.cli.rabbitmqctl import VERBS as CTL_VERBS
from penstock.cli.rabbitmqctl import checks
from tests.support.brokers import ROOT, Gateway
from tests.support.commands import Run
from tests.support.data_plane import until
from tests.support.managed import ALL_SETTINGS
from tests.support.management import Api
from tests.support.mqtt_devices import Device

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

OURS = """
    queues create vq
    queues list
    queues show vq
    exchanges create ve --type topic
    exchanges list
    exchanges show ve
    exchanges bind ve vq --routing-key a.*
    exchanges bindings ve
    pub --exchange ve --routing-key a.b --mandatory said
    tail --exchange ve --from first --max 1
    search --queue vq --contains said
    sub --queue vq --max 1
    queues purge vq
    exchanges unbind ve vq --routing-key a.*
    exchanges delete ve
    topics create vt --max-age 7D
    topics list
    topics show vt
    subs create vt/s --start earliest
    subs list vt
    subs show vt/s
    subs seek vt/s latest
    subs pause vt/s
    subs resume vt/s
    subs delete vt/s
    topics delete vt
    dlq list
    dlq peek vq
    dlq redrive vq --to vq
    webhooks create vw {"source":{"queue":"vq"},"url":"https://127.0.0.1:9/","verify":"none"}
    webhooks list
    webhooks show vw
    webhooks pause vw
    webhooks resume vw
    webhooks test vw
    webhooks rotate vw
    webhooks redrive vw
    webhooks replay vw -1h
    webhooks attempts vw
    webhooks delete vw
    shovels create vs {"src-uri":"amqp://","src-queue":"vq","dest-uri":"amqp://127.0.0.1:1","dest-queue":"q2"}
    shovels list
    shovels show vs
    shovels restart vs
    shovels delete vs
    federation list
    bridges list
    bridges show plant
    queues delete vq
    connections list
    connections channels
    connections consumers
    connections close CONNECTION
    users create vu --password x
    users list
    vhosts create vv --description made
    vhosts list
    users limit vu max-channels 9
    users limits
    users unlimit vu max-channels
    vhosts limit vv max-queues 9
    vhosts limits
    vhosts unlimit vv max-queues
    tokens create vt
    tokens list
    tokens revoke vt
    certificates list
    users grant --vhost vv vu a b c
    users permissions
    users revoke --vhost vv vu
    users delete vu
    vhosts delete vv
    policies create vp ^vq {"max-length":9}
    policies list
    policies delete vp
    definitions export FILE
    definitions import FILE
    audit list
    audit verify
    top --once
    bench --messages 10
    doctor --data NONE
    config show --origin
    config schema
    config reference
    completion fish
    migrate conf CONF
    migrate emqx EMQX --write ACL --apply
    log inspect DATA
    log verify DATA
    log stats DATA
    log dump DATA --limit 3
    log backup DATA --to COPY
    log repair COPY --apply
    log export COPY --to EXPORTED
    log import IMPORTED --from EXPORTED
"""

ELSEWHERE = {
    "serve": ("tests/e2e/gateway/test_serve.py", '"serve"'),
    "certificates reload": ("tests/e2e/management/test_certificates.py", '"certificates", "reload"'),
    "cluster status": ("tests/cluster/test_cluster.py", 'cluster(second, "status"'),
    "cluster handover": ("tests/cluster/test_cluster.py", 'cluster(first, "handover")'),
    "cluster rebuild": ("tests/cluster/test_cluster.py", 'cluster(second, "rebuild"'),
    "log move": ("tests/e2e/gateway/test_move_vhost.py", '"move"'),
    "migrate mosquitto": ("tests/e2e/links/test_migrate_mosquitto.py", '"migrate", "mosquitto"'),
    "migrate rabbitmq": ("tests/e2e/rabbitmq/test_migrate_rabbitmq.py", '"migrate", "rabbitmq"'),
    "spark": ("tests/spark/test_verbs.py", 'main(["spark", '),
}
"""Verbs that start, stop or move a whole gateway, or need Spark -> the test, and how it runs them."""

RABBITMQCTL = """
    version
    status
    ping
    report
    environment
    cluster_status
    await_startup
    await_online_nodes 1
    wait --pid PID
    rotate_logs
    set_log_level info
    list_feature_flags
    node_health_check
    list_node_auth_attempt_stats
    enable_feature_flag all
    force_gc = 69
    add_user ru secret
    authenticate_user ru secret
    change_password ru other
    clear_password ru
    set_user_tags ru monitoring
    list_users
    set_user_limits ru {"max-channels":7}
    list_user_limits --user ru
    clear_user_limits ru all
    add_vhost rv --description made
    list_vhosts
    set_vhost_tags rv a b
    set_vhost_limits -p rv {"max-queues":9}
    list_vhost_limits -p rv
    clear_vhost_limits -p rv
    set_permissions -p rv ru a b c
    list_permissions -p rv
    list_user_permissions ru
    set_topic_permissions -p rv ru amq.topic a b
    list_topic_permissions -p rv
    list_user_topic_permissions ru
    clear_topic_permissions -p rv ru
    clear_permissions -p rv ru
    trace_on -p rv
    trace_off -p rv
    close_all_user_connections ru night
    delete_user ru
    delete_vhost rv
    set_policy rp ^rq {"max-length":9}
    list_policies
    clear_policy rp
    set_operator_policy ro ^rq {"max-length":9}
    list_operator_policies
    clear_operator_policy ro
    set_global_parameter rg 1
    list_global_parameters
    clear_global_parameter rg
    set_parameter shovel rs {"src-uri":"amqp://","src-queue":"rq","dest-uri":"amqp://127.0.0.1:1","dest-queue":"x"}
    list_parameters
    shovel_status
    restart_shovel rs
    delete_shovel rs
    set_parameter federation-upstream up {"uri":"amqp://127.0.0.1:1"}
    federation_status
    restart_federation_link none = 69
    clear_parameter federation-upstream up
    list_queues
    list_exchanges
    list_bindings
    list_channels
    list_connections
    list_consumers
    purge_queue rq
    delete_queue rq
    export_definitions FILE
    import_definitions FILE
    set_vm_memory_high_watermark absolute 1TiB
    set_disk_free_limit 1GB = 69
    close_connection CONNECTION night
    close_all_connections night
    set_cluster_name = 69
    eval = 69
    join_cluster = 69
    forget_cluster_node = 69
    reset = 69
    stop = 69
    shutdown = 69
    suspend_listeners = 69
    resume_listeners = 69
    stop_app
    start_app
"""

EMQX = """{"version": "4.4", "auth_mnesia": [{"login": "from-emqx", "type": "username", "password":
"ARLrzTRhZTI1MzgxNjdjMDU5ODFhZDU3ZTdmNzJiOWM5MWUwMTFkNDk4OGUyZWUyYmU0ZTE2ZTg2OWNhMGQyYWQ5ZmU="}]}"""

DIAGNOSTICS = """
    alarms
    check_alarms
    check_certificate_expiration
    check_if_node_is_mirror_sync_critical
    check_if_node_is_quorum_critical
    check_local_alarms
    check_port_connectivity
    check_port_listener PORT
    check_protocol_listener amqp
    check_running
    check_virtual_hosts
    is_booting
    is_running
    list_user_limits --user guest
    list_user_permissions guest
    list_user_topic_permissions guest
    listeners
    log_location
    memory_breakdown
    server_version
    wait --pid PID
"""
"""The others are rabbitmqctl's, and need no words."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("verbs"), settings=ALL_SETTINGS) as running:
        yield running


@pytest.fixture
def run(gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    return Run(capsys)


def lines(table: str) -> Iterator[tuple[list[str], int]]:
    """(words, exit code) of each line."""
    for line in table.strip().splitlines():
        words, _, code = line.partition(" = ")
        yield words.split(), int(code or 0)


def verbs() -> set[str]:
    """Each command with its verbs; those of Spark and of RabbitMQ's tools have tables of their own."""
    found = {"spark"}
    for name in {*MODULES} - {*FOREIGN}:
        found |= {f"{name} {verb}" for verb in parser_of(name).verbs()} or {name}
    return found


def test_each_verb_of_ours_is_run(run: Run, gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "rabbitmq.conf").write_text("listeners.tcp.default = 5672\n")
    (tmp_path / "emqx.json").write_text(EMQX)
    names = {
        "FILE": "definitions.json",
        "COPY": "copy",
        "EXPORTED": "exported.gz",
        "IMPORTED": "imported",
        "NONE": "none",
        "CONF": "rabbitmq.conf",
        "EMQX": "emqx.json",
        "ACL": "acl",
    }
    stands = {name: str(tmp_path / file) for name, file in names.items()}
    stands["DATA"] = str(gateway.data_dir)
    seen = set()
    with Device(gateway.mqtt_port, "closed-by-command"):
        stands["CONNECTION"] = connection_named(gateway, "MQTT", "closed-by-command")
        for words, code in lines(OURS):
            seen.add(" ".join(words[: 1 + bool(parser_of(words[0]).verbs())]))
            run(*(stands.get(word, word) for word in words), code=code)
            assert run.errors == "" or words[0] == "definitions", words
    run("rabbitmqctl", "authenticate_user", "from-emqx", "public")
    assert seen | {*ELSEWHERE} == verbs()


def test_the_others_are_run_by_their_tests() -> None:
    for test, words in ELSEWHERE.values():
        assert words in (ROOT / test).read_text(), (test, words)


def connection_named(gateway: Gateway, protocol: str, client_id: str = "") -> str:
    """The name of the one connection of a protocol; of that client, if it is named: a bridge has one, too."""
    api = Api(gateway)
    found = [
        one["name"]
        for one in api.get("connections")
        if one["protocol"].startswith(protocol)
        and (not client_id or one["variable_map"].get("client_id") == client_id)
    ]
    api.close()
    assert len(found) == 1
    return str(found[0])


@pytest.mark.parametrize(
    ("tool", "table", "known"),
    [("rabbitmqctl", RABBITMQCTL, CTL_VERBS), ("rabbitmq-diagnostics", DIAGNOSTICS, checks.VERBS)],
)
def test_each_verb_of_rabbitmqs_tools_is_run(
    run: Run, gateway: Gateway, tmp_path: Path, tool: str, table: str, known: dict[str, object]
) -> None:
    run("queues", "create", "rq")
    stands = {
        "PID": str(gateway.pid),
        "PORT": str(gateway.amqp_port),
        "FILE": str(tmp_path / "definitions.json"),
    }
    told = dict[str, int]()
    all_lines = [*lines(table)]
    if tool == "rabbitmq-diagnostics":
        named = {words[0] for words, _ in all_lines}
        all_lines += [([name], 0) for name in known if name not in named]
    parameters = pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        stands["CONNECTION"] = connection_named(gateway, "AMQP")
        for words, code in all_lines:
            told[words[0]] = code
            run(tool, *(stands.get(word, word) for word in words), code=code)
            assert re.match(r"Error:\n.{20}", run.errors) if code else run.errors == "", (words, run.errors)
        if "close_connection" in told:
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="night"):
                connection.process_data_events(time_limit=60)
    assert told.keys() == known.keys()
    until(lambda: "is fully booted" in run("rabbitmq-diagnostics", "is_running"))
