"""Delayed records: in the log from the start, in a feed when they are due.

Read `delays` first: what is scheduled, when it is due, and how it survives a restart. `moves` copies
records that are due late to the end of the log, so that they do not hold old segments. `retries` keeps
due records that the disk could not deliver. `listing` shows those that wait. `_delays` is the kernel:
entries and the heap of due times.
"""
