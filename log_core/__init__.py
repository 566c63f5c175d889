"""What is kept: batches, the write-ahead log, feeds, tables, the tail cache. Knows no protocol."""
