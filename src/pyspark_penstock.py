"""Makes `spark.read.format("penstock")` known without a register call: PySpark imports `pyspark_*` and takes
their `DefaultSource`. One that cannot be imported would break all Python sources of a session."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
