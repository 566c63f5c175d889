"""The read path: batches that are no longer in the open batch.

`_tail` is the cache of the newest batches, which serves consumers that keep up. `reader` loads older
batches and feed entries on its own threads. `_resident` reads what the page cache holds without waiting.
`raw` gives the bytes of files to readers outside the process.
"""
