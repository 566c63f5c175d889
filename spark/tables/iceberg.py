"""An Iceberg table, written by the package pyiceberg without the JVM; every reader of Iceberg reads it.

    iceberg:/FOLDER/NAMESPACE.TABLE     catalog FOLDER/catalog.db (SQLite), table in FOLDER/NAMESPACE/TABLE
    iceberg:CATALOG/NAMESPACE.TABLE     a catalog that pyiceberg knows by its own configuration

Iceberg partitions by the day of a timestamp column without a column for it. The table's property
penstock.position.WHO moves in the same commit as the files that move it, and outlives expired snapshots. A
commit that meets another is made anew only if the position still is what it was; pyiceberg by itself would
put the files of two jobs behind one another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.extras import install
from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.schema import SCHEMA_VERSION
from penstock.spark.tables.files import DataFile, sync_files, write_files
from penstock.spark.tables.table import same_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg import table as iceberg
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.schema import Schema

__all__ = ["IcebergFormat"]

_POSITION: Final = "penstock.position."
_KEPT: Final = timedelta(days=7)
"""So long readers of an older snapshot may go on."""
_SMALL_BYTES: Final = 64 << 20
_LARGE_BYTES: Final = 128 << 20
_TRIES: Final = 10
_RETRIES: Final = "commit.retry.num-retries"
_IO: Final = "py-io-impl"
_SYNCED: Final = "penstock.spark.tables.iceberg_io.SyncedFileIO"
"""Metadata is on the disk before the catalog names it."""


class IcebergFormat:
    """See `tables.Table`."""

    def __init__(self, place: str) -> None:
        """`place`: what follows `iceberg:`. Raises SparkOptionError, SparkError."""
        self._folder, _, self._name = place.rpartition("/")
        if not self._folder or self._name.count(".") < 1 or any(char in place for char in "#?%"):
            remedy = "give iceberg:/FOLDER/NAMESPACE.TABLE or iceberg:CATALOG/NAMESPACE.TABLE"
            raise SparkOptionError("to", f"iceberg:{place}", remedy)
        self._local = self._folder.startswith(("/", "."))
        if self._local:
            self._folder = str(Path(self._folder).absolute())
        self._catalog: Catalog | None = None

    @property
    def path(self) -> Path:
        """Where its files go. Raises SparkError when that is no file system."""
        if self._local:
            return Path(self._folder, *self._name.split("."), "data")
        location = self._table().location()
        if not location.startswith(("/", "file:")):
            raise SparkError(
                f"the table {self._name} lies in {location}",
                remedy="penstock writes tables on file systems: make the catalog's warehouse file:///FOLDER",
            )
        return Path(_local(location)) / "data"

    def _opened(self) -> Catalog:
        if self._catalog is None:
            try:
                from pyiceberg.catalog import load_catalog
                from pyiceberg.catalog.sql import SqlCatalog
            except ImportError as error:
                raise SparkError(
                    f"tables in Iceberg need pyiceberg: {error}", remedy=install("iceberg")
                ) from None
            if self._local:
                folder = Path(self._folder)
                folder.mkdir(parents=True, exist_ok=True)
                uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
                self._catalog = SqlCatalog("default", uri=uri, warehouse=warehouse, **{_IO: _SYNCED})
            else:
                try:
                    self._catalog = load_catalog(self._folder, **{_IO: _SYNCED})
                except ValueError as error:
                    raise SparkError(
                        f"pyiceberg knows no catalog {self._folder!r}: {error}",
                        remedy="describe it in ~/.pyiceberg.yaml, or give iceberg:/FOLDER/NAMESPACE.TABLE",
                    ) from None
        return self._catalog

    def _table(self) -> iceberg.Table:
        """The table as it is now."""
        return self._opened().load_table(self._name)

    def position(self, who: str) -> int | None:
        """See `Table`."""
        catalog = self._opened()
        if not catalog.table_exists(self._name):
            return None
        return _position(self._table(), who)

    def create(self, schema: pa.Schema, moment: str = "append_time") -> None:
        """See `Table`."""
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform

        catalog = self._opened()
        wanted = _schema(schema)
        day = PartitionField(
            wanted.find_field(moment).field_id, PARTITION_FIELD_ID_START, DayTransform(), f"{moment}_day"
        )
        properties = {
            "comment": f"penstock, version {SCHEMA_VERSION}",
            "write.metadata.delete-after-commit.enabled": "true",
        }
        location = f"file://{self.path.parent}" if self._local else None
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        with suppress(TableAlreadyExistsError):
            catalog.create_table(self._name, wanted, location, PartitionSpec(day), properties=properties)
        self.path.mkdir(parents=True, exist_ok=True)
        same_columns(self.path, _told(self._table().schema()), _told(wanted))

    def publish(self, who: str, files: Sequence[DataFile], first: int, last: int) -> None:
        """See `Table`. Raises SparkError when another job has put [first, last) there meanwhile."""
        sync_files(self.path, files)
        paths = [f"{self.path}/{file.path}" for file in files]
        summary = {"penstock.who": who, "penstock.first": str(first), "penstock.last": str(last)}

        def add(table: iceberg.Table) -> None:
            position = _position(table, who)
            if position is not None and position > first:
                raise SparkError(
                    f"another job has put [{first}, {position}) into {self._name}",
                    remedy="let one job write what comes from one log",
                )
            with table.transaction() as change:
                # Their names are new: no look through all that are there.
                change.add_files(paths, summary, check_duplicate_files=False)
                change.set_properties({f"{_POSITION}{who}": str(last)})

        self._change(add)

    def make_durable(self) -> None:
        """See `Table`: a commit is, before the catalog has it."""

    def _change(self, make: Callable[[iceberg.Table], None]) -> None:
        """Make a commit on the table as it is; once more when another was first."""
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(1, _TRIES + 1):
            table = self._table()
            # Of this object alone, not of the table: see the module.
            table.metadata.properties[_RETRIES] = "0"
            try:
                make(table)
            except CommitFailedException:
                if attempt == _TRIES:
                    raise
                time.sleep(0.05 * attempt)
            else:
                return

    def paths(self) -> list[str]:
        """See `Table`."""
        return [_local(task.file.file_path) for task in self._table().scan().plan_files()]

    def compact(self) -> str:
        """See `Table`. Snapshots older than a week are forgotten, and files that no other has are removed."""
        removed, added = self._join()
        expired = self._expire()
        gone = self._sweep()
        became = f"{removed} files became {added}"
        return f"{became}, {expired} old snapshots and {gone} old files were removed"

    def _join(self) -> tuple[int, int]:
        """Make large files of the small ones of a day: how many went and came."""
        table = self._table()
        spec, schema = table.spec(), table.schema()
        moment = schema.find_column_name(spec.fields[0].source_id)
        assert moment is not None
        offset = schema.find_field("offset").field_id if "offset" in schema.column_names else 0
        small = [
            task.file
            for task in table.scan().plan_files()
            if task.file.file_size_in_bytes < _SMALL_BYTES and not task.delete_files
        ]
        small.sort(key=lambda file: (str(file.partition), _least(file, offset)))
        removed = added = 0
        for _, entries in groupby(small, lambda file: str(file.partition)):
            for group in _groups(list(entries)):
                added += self._replace(group, moment)
                removed += len(group)
        return removed, added

    def _replace(self, group: Sequence[Entry], moment: str) -> int:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        files = write_files(self.path, _rows(group), moment)
        sync_files(self.path, files)
        paths = [f"{self.path}/{file.path}" for file in files]

        def swap(table: iceberg.Table) -> None:
            with table.transaction() as change, change.update_snapshot().overwrite() as update:
                for entry in group:
                    update.delete_data_file(entry)
                for entry in parquet_files_to_data_files(table.io, change.table_metadata, iter(paths)):
                    update.append_data_file(entry)

        self._change(swap)
        return len(files)

    def _expire(self) -> int:
        before = datetime.now(UTC) - _KEPT
        last = self._table().current_snapshot()
        old = [
            snapshot.snapshot_id
            for snapshot in self._table().snapshots()
            if snapshot.timestamp_ms < before.timestamp() * 1000 and snapshot != last
        ]
        if old:
            self._change(lambda table: table.maintenance.expire_snapshots().older_than(before).commit())
        return len(old)

    def _sweep(self) -> int:
        """Remove what is older than a week and belongs to no snapshot."""
        table = self._table()
        known = {_local(table.metadata_location)}
        known |= {_local(entry.metadata_file) for entry in table.metadata.metadata_log}
        for snapshot in table.snapshots():
            known.add(_local(snapshot.manifest_list))
            for manifest in snapshot.manifests(table.io):
                known.add(_local(manifest.manifest_path))
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                known |= {_local(entry.data_file.file_path) for entry in entries}
        gone = 0
        before = time.time() - _KEPT.total_seconds()
        for path in self.path.parent.glob("*/**/*"):
            if path.is_file() and str(path) not in known and path.stat().st_mtime < before:
                path.unlink()
                gone += 1
        return gone


def _position(table: iceberg.Table, who: str) -> int | None:
    found = table.properties.get(f"{_POSITION}{who}")
    return None if found is None else int(found)


def _local(location: str) -> str:
    """The path of a file of a table on a file system."""
    return "/" + location.removeprefix("file:").lstrip("/")


def _least(file: Entry, field: int) -> int:
    """The least value of a bigint column: 8 bytes, little-endian (Iceberg's table spec, appendix D)."""
    return int.from_bytes(file.lower_bounds.get(field, b""), "little", signed=True)


def _groups(files: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours that together make a large file."""
    group: list[Entry] = []
    for file in files:
        if group and sum(f.file_size_in_bytes for f in group) + file.file_size_in_bytes > _LARGE_BYTES:
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def _rows(files: Sequence[Entry]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    for file in files:
        with pq.ParquetFile(_local(file.file_path)) as opened:
            yield from opened.iter_batches(16384)


def _schema(columns: pa.Schema) -> Schema:
    """Iceberg's types for those of `schema`; it has no integer of 8 bits. The table gives ids of its own."""
    import pyarrow as pa
    from pyiceberg import types
    from pyiceberg.schema import Schema

    simple = {
        pa.string(): types.StringType(),
        pa.int8(): types.IntegerType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.timestamp("us", tz="UTC"): types.TimestamptzType(),
        pa.bool_(): types.BooleanType(),
        pa.binary(): types.BinaryType(),
    }
    used = 0

    def numbered(name: str, kind: pa.DataType) -> types.NestedField:
        nonlocal used
        used += 1
        return types.NestedField(used, name, converted(kind), required=False)

    def converted(kind: pa.DataType) -> types.IcebergType:
        nonlocal used
        if pa.types.is_list(kind):
            used += 1
            return types.ListType(used, converted(kind.value_type), element_required=False)
        if pa.types.is_struct(kind):
            return types.StructType(*(numbered(field.name, field.type) for field in kind))
        return simple[kind]

    return Schema(*(numbered(field.name, field.type) for field in columns))


def _told(schema: Schema) -> list[str]:
    return [f"{field.name} {field.type}" for field in schema.as_arrow()]
