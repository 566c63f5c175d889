"""Reading the log: from the positions of a query to columns. Read `log_view`, then `planning` and `reading`.

`storage` brings the files from a data folder or a gateway, and `archive` from what `tiering` moved away. The
kernels `_columns`, `_events` and `_properties` turn batches into columns.
"""
