"""Tables that a job fills. Read `table`: files first, then one commit that says which files count.

`delta`, `iceberg` and `parquet` are the kinds of table. `table_sink` and `row_sink` write a stream into one.
"""
