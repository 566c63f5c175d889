"""The verbs that say how the gateway is: `status`, `cluster_status`, `environment`, `report`, `version`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.cli.rabbitmqctl.call import Call, Groups, Item, Verb
from penstock.cli.rabbitmqctl.resources import LISTS
from penstock.cli.running.client import segment

__all__ = ["GROUPS", "alarm_lines", "alarms_of", "listeners_of", "print_listeners"]

_PURPOSES: Final = {
    "amqp": "AMQP 0-9-1 and AMQP 1.0",
    "amqp/ssl": "AMQP 0-9-1 and AMQP 1.0 over TLS",
    "mqtt": "MQTT",
    "mqtt/ssl": "MQTT over TLS",
    "http/web-mqtt": "MQTT over WebSockets",
    "https/web-mqtt": "MQTT over WebSockets and TLS",
    "http": "HTTP API",
    "https": "HTTP API over TLS",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "penstock": "native protocol",
    "penstock/ssl": "native protocol over TLS",
}
_ALARMS: Final = (("mem_alarm", "memory"), ("disk_free_alarm", "disk"))
_GIB: Final = 2**30


def listeners_of(overview: Item) -> list[Item]:
    """The open listeners, as rabbitmqctl describes them."""
    return [
        {
            "node": one["node"],
            "interface": one["ip_address"],
            "port": one["port"],
            "protocol": one["protocol"],
            "purpose": _PURPOSES.get(one["protocol"], one["protocol"]),
        }
        for one in overview["listeners"]
    ]


def print_listeners(listeners: Iterable[Item], *, nodes: bool = False) -> None:
    """One line for each listener."""
    for one in listeners:
        begin = f"Node: {one['node']}, interface: " if nodes else "Interface: "
        rest = f"port: {one['port']}, protocol: {one['protocol']}, purpose: {one['purpose']}"
        print(f"{begin}{one['interface']}, {rest}")


def alarms_of(nodes: Iterable[Item]) -> list[Item]:
    """The alarms in effect."""
    return [
        {"node": node["name"], "resource": resource, "type": "resource_limit"}
        for node in nodes
        for key, resource in _ALARMS
        if node[key]
    ]


def _section(title: str, lines: Sequence[str]) -> None:
    print("\n".join([title, "", *(lines or ["(none)"]), ""]))


def alarm_lines(alarms: Iterable[Item]) -> list[str]:
    """A line for each alarm."""
    return [f"{one['resource'].capitalize()} alarm on node {one['node']}" for one in alarms]


# The verbs


def _version(call: Call) -> None:
    # The version of RabbitMQ that the gateway answers like is known without a gateway.
    from penstock.protocols.http.management.context import RABBITMQ_VERSION

    call.answer({"version": RABBITMQ_VERSION}, RABBITMQ_VERSION)


def _facts(call: Call) -> Item:
    """The state of the gateway, by rabbitmqctl's keys."""
    overview, node = call.client.get("overview"), call.node()
    totals = overview["object_totals"]
    return {
        "pid": int(node["os_pid"]),
        "uptime": node["uptime"] // 1000,
        "product_name": overview["product_name"],
        "product_version": overview["product_version"],
        "rabbitmq_version": overview["rabbitmq_version"],
        "runtime": overview["erlang_full_version"],
        "node": node["name"],
        "running": node["running"],
        "is_under_maintenance": node["being_drained"],
        "data_directory": node["db_dir"],
        "log_files": node["log_files"],
        "alarms": alarms_of([node]),
        "memory": call.client.get(f"nodes/{segment(node['name'])}/memory")["memory"],
        "vm_memory_high_watermark_limit": node["mem_limit"],
        "file_descriptors": {
            "total_limit": node["fd_total"],
            "total_used": node["fd_used"],
            "sockets_limit": node["sockets_total"],
            "sockets_used": node["sockets_used"],
        },
        "disk_free": node["disk_free"],
        "disk_free_limit": node["disk_free_limit"],
        "totals": {
            "connection_count": totals["connections"],
            "queue_count": totals["queues"],
            "virtual_host_count": len(call.client.get("vhosts")),
        },
        "listeners": listeners_of(overview),
    }


def _status(call: Call) -> None:
    facts = _facts(call)
    if call.is_json:
        print(json.dumps(facts))
        return
    call.say(f"Status of node {facts['node']} ...")
    files, totals = facts["file_descriptors"], facts["totals"]
    _section(
        "Runtime",
        [
            f"OS PID: {facts['pid']}",
            f"Uptime (seconds): {facts['uptime']}",
            f"Is under maintenance?: {str(facts['is_under_maintenance']).lower()}",
            f"{facts['product_name']} version: {facts['product_version']}",
            f"RabbitMQ version: {facts['rabbitmq_version']}",
            f"Node name: {facts['node']}",
            f"Runtime: {facts['runtime']}",
        ],
    )
    _section("Data directory", [f"Node data directory: {facts['data_directory']}"])
    _section("Log file(s)", [f" * {name}" for name in facts["log_files"]])
    _section("Alarms", alarm_lines(facts["alarms"]))
    _section(
        "Memory",
        [
            f"Total memory used: {facts['memory']['total']['rss'] / _GIB:.4f} gb",
            f"Memory high watermark: {facts['vm_memory_high_watermark_limit'] / _GIB:.4f} gb",
        ],
    )
    _section(
        "File Descriptors",
        [
            f"Total: {files['total_used']}, limit: {files['total_limit']}",
            f"Sockets: {files['sockets_used']}, limit: {files['sockets_limit']}",
        ],
    )
    _section(
        "Free Disk Space",
        [
            f"Low free disk space watermark: {facts['disk_free_limit'] / _GIB:.4f} gb",
            f"Free disk space: {facts['disk_free'] / _GIB:.4f} gb",
        ],
    )
    _section(
        "Totals",
        [
            f"Connection count: {totals['connection_count']}",
            f"Queue count: {totals['queue_count']}",
            f"Virtual host count: {totals['virtual_host_count']}",
        ],
    )
    print("Listeners\n")
    print_listeners(facts["listeners"])


def _cluster(call: Call) -> Item:
    overview, nodes = call.client.get("overview"), call.client.get("nodes")
    names = [node["name"] for node in nodes]
    by_node: dict[str, list[Item]] = {name: [] for name in names}
    for one in listeners_of(overview):
        by_node.setdefault(one["node"], []).append(one)
    return {
        "cluster_name": overview["cluster_name"],
        "disk_nodes": names,
        "ram_nodes": [],
        "running_nodes": [node["name"] for node in nodes if node["running"]],
        "versions": {
            name: {
                "rabbitmq_name": overview["product_name"],
                "rabbitmq_version": overview["rabbitmq_version"],
                "erlang_version": overview["erlang_full_version"],
            }
            for name in names
        },
        "maintenance_status": dict.fromkeys(names, "not under maintenance"),
        "alarms": alarms_of(nodes),
        "partitions": {},
        "listeners": by_node,
        "feature_flags": call.client.get("feature-flags"),
    }


def _cluster_status(call: Call) -> None:
    facts = _cluster(call)
    if call.is_json:
        print(json.dumps(facts))
        return
    call.say(f"Cluster status of node {facts['disk_nodes'][0]} ...")
    _section("Basics", [f"Cluster name: {facts['cluster_name']}"])
    _section("Disk Nodes", facts["disk_nodes"])
    _section("Running Nodes", facts["running_nodes"])
    versions = facts["versions"].items()
    _section(
        "Versions",
        [f"{name}: RabbitMQ {one['rabbitmq_version']} on {one['erlang_version']}" for name, one in versions],
    )
    under = facts["maintenance_status"].items()
    _section("Maintenance status", [f"Node: {name}, status: {status}" for name, status in under])
    _section("Alarms", alarm_lines(facts["alarms"]))
    _section("Network Partitions", [])
    print("Listeners\n")
    print_listeners((one for found in facts["listeners"].values() for one in found), nodes=True)
    print()
    _section(
        "Feature flags", [f"Flag: {one['name']}, state: {one['state']}" for one in facts["feature_flags"]]
    )


def _environment(call: Call) -> None:
    node = call.node()
    call.say(f"Application environment of node {node['name']} ...")
    found = {
        "penstock": {
            "data_dir": node["db_dir"],
            "disk_free_limit": node["disk_free_limit"],
            "log_level": node["log_level"],
            "memory_limit": node["mem_limit"],
            "rates_mode": node["rates_mode"],
            "listeners": [
                f"{one['protocol']}={one['interface']}:{one['port']}"
                for one in listeners_of(call.client.get("overview"))
            ],
        }
    }
    if call.is_json:
        print(json.dumps(found))
        return
    for key, value in found["penstock"].items():
        print(f"{key} = {json.dumps(value)}")
    call.say("`penstock config show` has all options, as the sources of the configuration have them now")


def _report(call: Call) -> None:
    call.say("Reporting server status ...")
    call.parsed.formatter = "table"
    for action in (_status, _cluster_status, _environment):
        action(call)
        print()
    vhosts = [one["name"] for one in call.client.get("vhosts")]
    for name, verb in LISTS["Monitoring, observability and health checks"].items():
        call.parsed.verb = name
        per_vhost = "--vhost" in verb.usage
        for vhost in vhosts if per_vhost else vhosts[:1]:
            call.parsed.vhost, call.vhost = vhost, segment(vhost)
            verb.action(call)
            print()


GROUPS: Final[Groups] = {
    "Help": {"version": Verb(_version, "Displays the version of RabbitMQ whose API is answered")},
    "Cluster": {"cluster_status": Verb(_cluster_status, "Displays nodes, versions, alarms and listeners")},
    "Monitoring, observability and health checks": {
        "report": Verb(_report, "Displays status, cluster_status, environment and all lists"),
        "status": Verb(_status, "Displays the status of the gateway"),
    },
    "Configuration and Environment": {
        "environment": Verb(_environment, "Displays settings of the running gateway"),
    },
}
