"""The help of `penstock rabbitmqctl` and `penstock rabbitmq-diagnostics`, in the form of RabbitMQ's."""

from __future__ import annotations

from typing import Final

from penstock.cli.rabbitmqctl.call import Groups, Verb
from penstock.cli.rabbitmqctl.columns import COLUMNS

__all__ = ["TITLES", "of_verb", "overview"]

TITLES: Final = (
    "Help",
    "Nodes",
    "Cluster",
    "Users",
    "Access Control",
    "Monitoring, observability and health checks",
    "Parameters",
    "Federation",
    "Shovel",
    "Policies",
    "Virtual hosts",
    "Configuration and Environment",
    "Definitions",
    "Feature flags",
    "Operations",
    "Queues",
)
"""The titles of groups, in RabbitMQ's order."""

_OPTIONS: Final = """\
General Options

   --url <url>           the management API, http://USER:PASSWORD@HOST:PORT
                         (default: PENSTOCK_URL, or http://guest:guest@127.0.0.1:15672)
   -p, --vhost <vhost>   the virtual host, for commands about one (default: /)
   -q, --quiet           leave out informational messages
   -s, --silent          leave out informational messages and the header row of tables
   --no-table-headers    leave out the header row
   --formatter <format>  table, csv, pretty_table or json
   -t, --timeout <n>     seconds, for commands that wait
   -n, --node <node>     accepted, and not used: --url says which gateway is asked
"""


def overview(tool: str, groups: Groups) -> str:
    """All verbs in groups."""
    width = max(len(name) for verbs in groups.values() for name in verbs)
    lines = ["", "Usage", "", f"penstock {tool} [--url <url>] [--quiet] <command> [<command options>]"]
    lines += ["", "Available commands:"]
    for title, verbs in groups.items():
        lines += ["", f"{title}:", "", *(f"   {name:<{width}}  {verbs[name].text}" for name in sorted(verbs))]
    lines += ["", _OPTIONS, f"Use 'penstock {tool} help <command>' to learn more about a specific command"]
    return "\n".join(lines)


def of_verb(tool: str, name: str, verb: Verb) -> str:
    """One verb with its words."""
    usage = f"penstock {tool} [--url <url>] [--quiet] {name} {verb.usage}".rstrip()
    lines = ["", "Usage", "", usage, "", f"{verb.text}."]
    if name in COLUMNS:
        lines += ["", "Arguments and Options", "", "<column>"]
        lines += [f"\tmust be one of {', '.join(sorted(COLUMNS[name]))}"]
    return "\n".join([*lines, "", _OPTIONS])
