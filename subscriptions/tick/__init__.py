"""The tick: one turn of the event loop, in which messages are appended, written, delivered and flushed.

Read `tick` first: the order of steps, and timed work between ticks. `_tick` is its kernel. `_fast_path`
serves a message that comes alone before the log is written. `_stored_batches` hands a whole stored batch
to one consumer.
"""
