"""The write path: from the open batch to durable bytes.

Read `wal` first: the active segment, the next one, and the change between them. `_writer` closes the
open batch once per turn and writes it to the file (`_active`). `_committer` is the thread that syncs;
`_waiters` holds the callbacks that wait for a write or a sync. `_unwritten` lets a consumer see a batch
before it is written. `backpressure` holds publishers back while the log cannot keep up.
"""
