"""One turn of the event loop: appended, written once, delivered, flushed once.

Read `turn` first: the order of steps in a turn, and timed work between turns. `_turns` is its kernel.
`_fast_path` serves a message that comes alone before the log is written. `_stored_batches` hands a whole
stored batch to one consumer.
"""
