"""Tables that a stream writes, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import DataScan

from penstock.spark.tables.table import open_table

if TYPE_CHECKING:
    pass


def table_at(kind: str, folder: Path) -> str:
    return f"iceberg:{folder}/gw.traffic" if kind == "iceberg" else f"{kind}:{folder}"


def iceberg_scan(uri: str) -> DataScan:
    folder, _, name = uri.partition(":")[2].rpartition("/")
    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db").load_table(name).scan()


def rows_of(uri: str) -> pa.Table:
    """The rows that another project's reader of the format finds."""
    kind, _, path = uri.partition(":")
    if kind == "delta":
        return DeltaTable(path).to_pyarrow_table()
    if kind == "iceberg":
        return iceberg_scan(uri).to_arrow()
    return ds.dataset(open_table(uri).paths(), format="parquet").to_table()


def count_of(uri: str) -> int:
    """How many rows there are, by what the table says of its files."""
    kind, _, path = uri.partition(":")
    if kind == "iceberg":
        folder = Path(path).parent
        if not (folder / "gw" / "traffic" / "metadata").is_dir():
            return 0
        return sum(task.file.record_count for task in iceberg_scan(uri).plan_files())
    if not DeltaTable.is_deltatable(path):
        return 0
    actions = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    return sum(actions.column("num_records").to_pylist())


def payloads(uri: str) -> list[str]:
    return sorted(body.decode() for body in rows_of(uri).column("payload").to_pylist())


def lose_last_commit(checkpoint: Path) -> None:
    """Spark's note that the last micro-batch is done."""
    commits = checkpoint / "commits"
    newest = max(
        (path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    )
    newest.unlink()
    (commits / f".{newest.name}.crc").unlink(missing_ok=True)
