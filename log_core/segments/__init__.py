"""Segments: the files of the write-ahead log, and the index files of each closed one.

Read `segment` first: the list of segments, and the sparse index that finds a position or a time.
`feed_index` reads and writes the feed entries of a closed segment. `_segment_file` is an open segment
that is read or sent. `damage` lists the places that were found damaged since the start.

`log_core.maintenance` deletes and rewrites segments; `log_core.wal` writes the active one.
"""
