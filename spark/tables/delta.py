"""A Delta table, written by the package deltalake without the JVM; every Delta reader reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.locations import is_local
from penstock.spark.schema import SCHEMA_VERSION
from penstock.spark.tables.delta_log import make_durable, mend
from penstock.spark.tables.files import PARTITION, DataFile, sync_files
from penstock.spark.tables.table import same_columns, with_partition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DeltaFormat"]

_KEPT_HOURS: Final = 168
"""So long readers of an older version of the table may go on, Delta's own default."""


class DeltaFormat:
    """See `tables.Table`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(self.path))

    def position(self, who: str) -> int | None:
        """See `Table`."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.path)):
            return None
        found: int | None = self._table().transaction_version(f"penstock:{who}")
        return found

    def create(self, schema: pa.Schema, moment: str = "append_time") -> None:
        """See `Table`."""
        from deltalake import DeltaTable, Schema

        schema = with_partition(schema)
        if is_local(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            mend(self.path)
        table = DeltaTable.create(
            str(self.path),
            schema=schema,
            mode="ignore",
            partition_by=[PARTITION],
            description=f"penstock, version {SCHEMA_VERSION}",
        )
        # A job that was killed may have left a commit that is whole, and not on the disk: see delta_log.
        self.make_durable()
        same_columns(self.path, _told(table.schema()), _told(Schema.from_arrow(schema)))

    def publish(self, who: str, files: Sequence[DataFile], first: int, last: int) -> None:
        """See `Table`."""
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        actions: list[Any] = [
            AddAction(
                path=file.path,
                size=file.nbytes,
                partition_values={PARTITION: file.date},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps(_statistics(file)),
            )
            for file in files
        ]
        sync_files(self.path, files)
        table = self._table()
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=[PARTITION],
            commit_properties=CommitProperties(app_transactions=[Transaction(f"penstock:{who}", last)]),
            post_commithook_properties=_hooks(),
        )
        self.make_durable()

    def make_durable(self) -> None:
        """See `Table`."""
        if is_local(self.path):
            make_durable(self.path)

    def paths(self) -> list[str]:
        """See `Table`."""
        return [str(uri).removeprefix("file://") for uri in self._table().file_uris()]

    def compact(self) -> str:
        """See `Table`. Files that are no part of the table for a week are removed: compacted ones, and
        those of attempts that failed.
        """
        table = self._table()
        done = table.optimize.compact(post_commithook_properties=_hooks())
        self.make_durable()
        gone = table.vacuum(_KEPT_HOURS, dry_run=False, full=True, post_commithook_properties=_hooks())
        self.make_durable()
        # Only now: the checkpoint that makes them superfluous is on the disk.
        table.cleanup_metadata()
        became = f"{done['numFilesRemoved']} files became {done['numFilesAdded']}"
        return f"{became}, {len(gone)} old ones were removed"


def _hooks() -> Any:
    """No commit removes old ones: the checkpoint that replaces them is not on the disk yet."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


def _statistics(file: DataFile) -> dict[str, Any]:
    if not file.last:
        return {"numRecords": file.rows}
    least, greatest = {"offset": file.first}, {"offset": file.last}
    return {"numRecords": file.rows, "minValues": least, "maxValues": greatest}


def _told(schema: Any) -> list[str]:
    return [f"{field.name} {field.type}" for field in schema.fields]
