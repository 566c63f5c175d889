"""The verbs of `penstock rabbitmqctl` about queues, exchanges, bindings and connections."""

from __future__ import annotations

from typing import Final

from penstock.cli.rabbitmqctl.call import USAGE_ERROR, Call, Failure, Groups, Verb
from penstock.cli.running.client import ApiError, segment

__all__ = ["GROUPS", "LISTS"]

_OF_VHOST: Final = "[--vhost <vhost>] [<column> ...]"
_PROTOCOLS: Final = {"AMQP 0-9-1": "{0,9,1}"}
"""As rabbitmqctl prints them."""


def _list_queues(call: Call) -> None:
    call.say(f"Timeout: 60.0 seconds ...\nListing queues for vhost {call.parsed.vhost} ...")
    items = [] if call.parsed.offline else call.client.get(f"queues/{call.vhost}")
    call.rows(items, call.words or ("name", "messages"), {"pid": "node"})


def _list_exchanges(call: Call) -> None:
    call.say(f"Listing exchanges for vhost {call.parsed.vhost} ...")
    call.rows(call.client.get(f"exchanges/{call.vhost}"), call.words or ("name", "type"))


def _list_bindings(call: Call) -> None:
    call.say(f"Listing bindings for vhost {call.parsed.vhost}...")
    items = [{**item, "source_kind": "exchange"} for item in call.client.get(f"bindings/{call.vhost}")]
    columns = (
        "source_name",
        "source_kind",
        "destination_name",
        "destination_kind",
        "routing_key",
        "arguments",
    )
    names = {
        "source_name": "source",
        "destination_name": "destination",
        "destination_kind": "destination_type",
    }
    call.rows(items, call.words or columns, names)


def _list_connections(call: Call) -> None:
    call.say("Listing connections ...")
    columns = call.words or ("user", "peer_host", "peer_port", "state")
    items = call.client.get("connections")
    if call.parsed.formatter != "json":
        items = [{**item, "protocol": _PROTOCOLS.get(item["protocol"], item["protocol"])} for item in items]
    call.rows(items, columns, {"pid": "name"})


def _list_channels(call: Call) -> None:
    call.say("Listing channels ...")
    columns = call.words or ("pid", "user", "consumer_count", "messages_unacknowledged")
    call.rows(call.client.get("channels"), columns, {"pid": "name", "connection": "connection_details.name"})


def _list_consumers(call: Call) -> None:
    call.say(f"Listing consumers in vhost {call.parsed.vhost} ...")
    columns = (
        "queue_name",
        "channel_pid",
        "consumer_tag",
        "ack_required",
        "prefetch_count",
        "active",
        "arguments",
    )
    names = {"queue_name": "queue.name", "channel_pid": "channel_details.name"}
    call.rows(call.client.get(f"consumers/{call.vhost}"), call.words or columns, names)


def _close_connection(call: Call) -> None:
    reason = call.word(1, "closed by rabbitmqctl")
    call.say(f"Closing connection {call.words[0]}, reason: {reason}...")
    call.client.request("DELETE", f"connections/{call.path(0)}", **{"x-reason": reason})


def _close_all_user_connections(call: Call) -> None:
    user, reason = call.words[0], call.word(1, "closed by rabbitmqctl")
    call.say(f"Closing connections of user {user}, reason: {reason}...")
    call.client.request("DELETE", f"connections/username/{call.path(0)}", **{"x-reason": reason})


def _close_all_connections(call: Call) -> None:
    reason = call.word(0, "closed by rabbitmqctl")
    vhost = None if call.parsed.everywhere or call.parsed.vhost == "/" else call.parsed.vhost
    where = "" if call.parsed.everywhere else f" in vhost {call.parsed.vhost}"
    call.say(f"Closing all connections{where}, reason: {reason}...")
    count = 0
    for item in call.client.get("connections"):
        if vhost is None or item["vhost"] == vhost:
            path = f"connections/{segment(item['name'])}"
            try:
                call.client.request("DELETE", path, **{"x-reason": reason})
            except ApiError as error:
                if error.status != 404:  # gone by itself meanwhile
                    raise
            count += 1
    call.say(f"Closed {count} connections")


def _delete_queue(call: Call) -> None:
    only = [
        text
        for text, on in (("queue is empty", call.parsed.if_empty), ("queue is unused", call.parsed.if_unused))
        if on
    ]
    when = f" if {' and '.join(only)}" if only else ""
    call.say(f"Deleting queue '{call.words[0]}' on vhost '{call.parsed.vhost}'{when} ...")
    query = "".join(
        f"{'&' if at else '?'}{name}=true"
        for at, name in enumerate(
            name
            for name, on in (("if-empty", call.parsed.if_empty), ("if-unused", call.parsed.if_unused))
            if on
        )
    )
    path = f"queues/{call.vhost}/{call.path(0)}"
    try:
        ready = call.client.get(path)["messages_ready"]
    except ApiError as error:
        if error.status != 404:
            raise
        raise Failure("Queue not found", USAGE_ERROR) from error
    call.client.request("DELETE", path + query)
    print(f"Queue was successfully deleted with {ready} ready messages")


def _purge_queue(call: Call) -> None:
    call.say(f"Purging queue '{call.words[0]}' in vhost '{call.parsed.vhost}' ...")
    call.client.request("DELETE", f"queues/{call.vhost}/{call.path(0)}/contents")


LISTS: Final[Groups] = {
    "Monitoring, observability and health checks": {
        "list_bindings": Verb(_list_bindings, "Lists the bindings of a virtual host", _OF_VHOST),
        "list_channels": Verb(_list_channels, "Lists channels", "[<column> ...]"),
        "list_connections": Verb(_list_connections, "Lists connections", "[<column> ...]"),
        "list_consumers": Verb(_list_consumers, "Lists the consumers of a virtual host", _OF_VHOST),
        "list_exchanges": Verb(_list_exchanges, "Lists the exchanges of a virtual host", _OF_VHOST),
        "list_queues": Verb(_list_queues, "Lists the queues of a virtual host", _OF_VHOST),
    }
}
"""The verbs that only look."""

GROUPS: Final[Groups] = {
    **LISTS,
    "Operations": {
        "close_all_connections": Verb(
            _close_all_connections,
            "Closes all connections, or those of a virtual host",
            "[--vhost <vhost>] [--global] [<explanation>]",
        ),
        "close_all_user_connections": Verb(
            _close_all_user_connections, "Closes the connections of a user", "<username> [<explanation>]"
        ),
        "close_connection": Verb(
            _close_connection, "Closes a connection, by its name", "<connectionname> [<explanation>]"
        ),
    },
    "Queues": {
        "delete_queue": Verb(
            _delete_queue, "Deletes a queue", "[--vhost <vhost>] <queue_name> [--if-empty] [--if-unused]"
        ),
        "purge_queue": Verb(
            _purge_queue, "Drops the messages that are ready in a queue", "[--vhost <vhost>] <queue_name>"
        ),
    },
}
