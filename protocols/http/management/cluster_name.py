"""The name of the gateway, which an administrator may change: a global parameter, as with RabbitMQ.

Without one it is the name in the configuration. Headers of federation and names of nodes stay as they are.
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.http.management.context import Management
from penstock.protocols.http.management.resources.parameters import GLOBAL_TABLE
from penstock.router.arguments import decode_table, encode_table
from penstock.router.rows import row_key

__all__ = ["cluster_name", "rename_cluster"]

_NAME: Final = "cluster_name"


def cluster_name(api: Management) -> str:
    """The name that is shown."""
    row = api.broker.log.tables.get(GLOBAL_TABLE, row_key(_NAME))
    value = None if row is None else decode_table(row)["value"]
    return value if isinstance(value, str) and value else api.cluster


async def rename_cluster(api: Management, name: str) -> None:
    """Show another name from now on; "": that of the configuration. Raises HttpError 503."""
    tables = api.broker.log.tables
    if name:
        row = encode_table({"name": _NAME, "value": name})
        await api.kept(tables.put(GLOBAL_TABLE, row_key(_NAME), row))
    elif tables.get(GLOBAL_TABLE, row_key(_NAME)) is not None:
        await api.kept(tables.delete(GLOBAL_TABLE, row_key(_NAME)))
