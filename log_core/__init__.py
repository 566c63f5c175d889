"""The log core: batches, the write-ahead log, feeds, tables and the tail cache. It knows no protocol."""
