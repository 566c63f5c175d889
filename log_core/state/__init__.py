"""Tables: durable key-value state of the log and of the layers above it.

Queues, bindings, users, sessions and cursors are rows. Each change is a record of state in the log; a
checkpoint (`log_core.recovery.checkpoint`) holds all rows as of one position. Read `tables` first.
`spill` keeps the values of large tables in a scratch file.
"""
