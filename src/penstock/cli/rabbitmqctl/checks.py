"""`penstock rabbitmq-diagnostics`: health checks, by exit code and a line, and the verbs that only look."""

from __future__ import annotations

import ipaddress
import json
import socket
from typing import Final

from penstock.cli.rabbitmqctl import admin, node, parameters, starting, state
from penstock.cli.rabbitmqctl.call import FAILED_CHECK, Call, Failure, Groups, Item, Usage, Verb
from penstock.cli.rabbitmqctl.command import Tool
from penstock.cli.rabbitmqctl.resources import LISTS
from penstock.cli.running.client import ApiError, segment

__all__ = ["BOTH", "VERBS", "run"]

_CONNECT_S: Final = 5.0
_NAMES: Final = {"amqp091": "amqp", "amqp10": "amqp", "amqps": "amqp/ssl", "mqtts": "mqtt/ssl"}
"""Other names of protocols, as scripts write them."""
_HEALTH: Final = "Monitoring, observability and health checks"
_SEEN: Final = (
    "list_feature_flags",
    "list_operator_policies",
    "list_permissions",
    "list_policies",
    "list_topic_permissions",
    "list_user_limits",
    "list_user_permissions",
    "list_user_topic_permissions",
    "list_users",
    "list_vhost_limits",
    "list_vhosts",
)
"""Verbs of rabbitmqctl's that rabbitmq-diagnostics has, too."""


def _check(call: Call, path: str) -> Item:
    """The answer to a health check. Raises Failure with the reason."""
    try:
        found: Item = call.client.get(f"health/checks/{path}")
    except ApiError as error:
        if error.status != 503:
            raise
        raise Failure(str(error), FAILED_CHECK) from error
    return found


def _in_service(call: Call, name: str) -> None:
    try:
        _check(call, "is-in-service")
    except Failure as error:
        said = f"RabbitMQ on node {name} is not running or has not fully booted yet"
        raise Failure(said, FAILED_CHECK, remedy=str(error)) from error


def _check_running(call: Call) -> None:
    name = call.node()["name"]
    call.say(f"Checking if RabbitMQ is running on node {name} ...")
    _in_service(call, name)
    call.passed(f"RabbitMQ on node {name} is fully booted and running")


def _is_running(call: Call) -> None:
    node = call.node()
    call.say(f"Asking node {node['name']} for its status ...")
    how = "is fully booted and running" if node["running"] else "is not running or has not fully booted yet"
    text = f"RabbitMQ on node {node['name']} {how}"
    call.answer({"result": node["running"], "message": text}, text)


def _is_booting(call: Call) -> None:
    name = call.node()["name"]  # who answers has booted
    call.say(f"Asking node {name} for its boot status ...")
    said = "is fully booted (check with is_running), stopped or has not started booting yet"
    text = f"RabbitMQ on node {name} {said}"
    call.answer({"result": False, "message": text}, text)


def _alarms(call: Call) -> None:
    name = call.node()["name"]
    call.say(f"Asking node {name} to report any known resource alarms ...")
    found = state.alarm_lines(state.alarms_of(call.client.get("nodes")))
    text = "\n".join(found) or f"Node {name} reported no alarms, local or clusterwide"
    call.answer({"result": "ok", "node": name, "alarms": found}, text)


def _check_alarms(call: Call) -> None:
    local = call.parsed.verb == "check_local_alarms"
    node = call.node()
    call.say(f"Asking node {node['name']} to report any local resource alarms ...")
    nodes = [node] if local else call.client.get("nodes")
    found = state.alarm_lines(state.alarms_of(nodes))
    if found:
        raise Failure("\n".join(found), FAILED_CHECK)
    _check(call, "local-alarms" if local else "alarms")
    call.passed(
        f"Node {node['name']} reported no {'local alarms' if local else 'alarms, local or clusterwide'}"
    )


def _listeners(call: Call) -> None:
    overview = call.client.get("overview")
    call.say(f"Asking node {overview['node']} to report its protocol listeners ...")
    found = state.listeners_of(overview)
    if call.is_json:
        print(json.dumps({"result": "ok", "node": overview["node"], "listeners": found}))
    else:
        state.print_listeners(found)


def _check_port_listener(call: Call) -> None:
    overview, port = call.client.get("overview"), call.words[0]
    if not port.isdecimal():
        raise Usage(f"{port!r} is no port")
    call.say(f"Asking node {overview['node']} if there's an active listener on port {port} ...")
    ports = [str(one["port"]) for one in overview["listeners"]]
    if port not in ports:
        known = f"Found listeners that use the following ports: {', '.join(ports)}"
        raise Failure(
            f"No listener for port {port} is active on node {overview['node']}. {known}", FAILED_CHECK
        )
    call.passed(f"A listener for port {port} is running on node {overview['node']}.")


def _check_protocol_listener(call: Call) -> None:
    overview, protocol = call.client.get("overview"), call.words[0]
    call.say(f"Asking node {overview['node']} if there's an active listener for protocol {protocol} ...")
    wanted = _NAMES.get(protocol, protocol)
    protocols = sorted({one["protocol"] for one in overview["listeners"]})
    if wanted not in protocols:
        known = f"Found listeners for the following protocols: {', '.join(protocols)}"
        said = f"No listener for protocol {protocol} is active on node {overview['node']}. {known}"
        raise Failure(said, FAILED_CHECK)
    call.passed(f"A listener for protocol {protocol} is running on node {overview['node']}.")


def _check_port_connectivity(call: Call) -> None:
    overview = call.client.get("overview")
    call.say(f"Testing TCP connections to all active listeners on node {overview['node']} ...")
    _in_service(call, overview["node"])
    host = call.client.address.rpartition(":")[0]
    listeners = [one for one in state.listeners_of(overview) if one["port"]]
    failed = [one for one in listeners if not _connects(_reached_at(one["interface"], host), one["port"])]
    if failed:
        ports = ", ".join(f"{one['interface']}:{one['port']}" for one in failed)
        raise Failure(f"Connection to ports of the following listeners failed: {ports}", FAILED_CHECK)
    ports = ", ".join(sorted({str(one["port"]) for one in listeners}))
    call.passed(f"Successfully connected to ports {ports} on node {overview['node']}.")


def _reached_at(interface: str, host: str) -> str:
    """Where a listener is reached from here, when the gateway is `host`."""
    address = ipaddress.ip_address(interface)
    # A loopback address is the gateway's own, and from another machine it is not reached by it.
    return host if address.is_unspecified or (address.is_loopback and not _is_loopback(host)) else interface


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _check_virtual_hosts(call: Call) -> None:
    name = call.node()["name"]
    call.say(f"Checking if all vhosts are running on node {name} ...")
    _in_service(call, name)
    _check(call, "virtual-hosts")
    call.passed(f"Node {name} reported all vhosts as running")


def _check_certificate_expiration(call: Call) -> None:
    name = call.node()["name"]
    call.say(f"Checking certificate expiration on node {name} ...")
    _check(call, f"certificate-expiration/{call.parsed.within}/{segment(call.parsed.unit)}")
    call.passed(f"No certificates are expiring within {call.parsed.within} {call.parsed.unit}.")


def _check_critical(call: Call) -> None:
    name = call.node()["name"]
    kind = "quorum" if "quorum" in call.parsed.verb else "mirror-sync"
    call.say(f"Checking if node {name} is critical for any queues ...")
    _check(call, f"node-is-{kind}-critical")
    call.passed(f"Node {name} has no replicas of queues elsewhere, the check does not apply")


def _server_version(call: Call) -> None:
    overview = call.client.get("overview")
    call.say(f"Asking node {overview['node']} for its RabbitMQ version...")
    version = overview["rabbitmq_version"]
    call.answer({"result": "ok", "value": version}, version)


def _log_location(call: Call) -> None:
    node = call.node()
    call.say(f"Log file location(s) on node {node['name']} ...")
    call.answer({"result": "ok", "paths": node["log_files"]}, "\n".join(node["log_files"]))


def _memory_breakdown(call: Call) -> None:
    name = call.node()["name"]
    call.say(f"Reporting memory breakdown on node {name}...")
    memory = call.client.get(f"nodes/{segment(name)}/memory")["memory"]
    total = memory["total"]["rss"]
    parts = {key: value for key, value in memory.items() if isinstance(value, int)}
    if call.is_json:
        print(
            json.dumps({key: {"bytes": value, "percentage": value / total} for key, value in parts.items()})
        )
        return
    for key, value in sorted(parts.items(), key=lambda item: -item[1]):
        if value:
            print(f"{key}: {value / 2**30:.4f} gb ({value / total:.2%})")


def _auth_attempts(call: Call) -> None:
    name = call.node()["name"]
    call.say(f'Listing authentication attempts for node "{name}" ...')
    columns = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
    call.rows(call.client.get(f"auth/attempts/{segment(name)}"), columns)


_CRITICAL: Final = Verb(_check_critical, "Passes: no queue has replicas that this gateway could lack")

BOTH: Final[Groups] = {
    _HEALTH: {
        "list_node_auth_attempt_stats": Verb(_auth_attempts, "Lists logins by protocol"),
        "node_health_check": Verb(_check_running, "Deprecated there: fails if clients cannot connect"),
    }
}
"""Verbs that rabbitmqctl has, too."""

_GROUPS: Final[Groups] = {
    "Nodes": {"wait": starting.WAIT},
    _HEALTH: {
        "alarms": Verb(_alarms, "Lists the alarms in effect"),
        "check_alarms": Verb(_check_alarms, "Fails if any worker has an alarm"),
        "check_certificate_expiration": Verb(
            _check_certificate_expiration,
            "Fails if a certificate of the server expires soon",
            "[--unit <days | weeks | months | years>] [--within <n>]",
        ),
        "check_if_node_is_mirror_sync_critical": _CRITICAL,
        "check_if_node_is_quorum_critical": _CRITICAL,
        "check_local_alarms": Verb(_check_alarms, "Fails if the worker that answers has an alarm"),
        "check_port_connectivity": Verb(
            _check_port_connectivity, "Fails if a listener cannot be connected to from here"
        ),
        "check_port_listener": Verb(_check_port_listener, "Fails if nothing listens on a port", "<port>"),
        "check_protocol_listener": Verb(
            _check_protocol_listener, "Fails if nothing listens for a protocol", "<protocol>"
        ),
        "check_running": Verb(_check_running, "Fails if clients cannot connect"),
        "check_virtual_hosts": Verb(_check_virtual_hosts, "Fails if a virtual host is not running"),
        "is_booting": Verb(_is_booting, "Says whether the gateway is starting"),
        "is_running": Verb(_is_running, "Says whether clients can connect"),
        "listeners": Verb(_listeners, "Lists the open listeners"),
        "memory_breakdown": Verb(_memory_breakdown, "Says what takes how much memory"),
        "ping": starting.PING,
        "server_version": Verb(_server_version, "Displays the version of RabbitMQ whose API is answered"),
    },
    "Configuration and Environment": {"log_location": Verb(_log_location, "Says where log lines go")},
}


def _seen(groups: Groups) -> Groups:
    """Those of the verbs that `rabbitmq-diagnostics` has, too."""
    found: Groups = {}
    for title, verbs in groups.items():
        if seen := {name: verb for name, verb in verbs.items() if name in _SEEN}:
            found[title] = seen
    return found


_TOOL: Final = Tool(
    "rabbitmq-diagnostics",
    state.GROUPS,
    _GROUPS,
    BOTH,
    LISTS,
    parameters.LISTS,
    _seen(admin.GROUPS),
    _seen(node.GROUPS),
)

VERBS: Final = _TOOL.verbs
run: Final = _TOOL.run
