"""Batches in memory: the record format, compression, checksums, appending and scanning.

A batch is a run of records that are appended, written and checksummed together. docs/reference/format.md
has its bytes. This package owns the format; it opens no file and knows no segment.

Read `_batch` first: it has the head of a batch and of a record. `_appender` adds records to the open
batch and their positions to feeds. `_scan` walks the batches of a file and checks each. `_blocks`
compresses the records of a batch, and `_crc` computes CRC-32C.
"""
