"""Feeds: for each binding pattern, topic filter or queue name, the positions of the records that matched
it.

A feed is append-only. Queues read it through cursors. The entries of the active segment are in memory;
those of closed segments are in index files (`log_core.segments.feed_index`) and may leave memory.

Read `_feed` first: the list itself. `feeds` is the registry: ids, names, reloading. `memory` keeps the
entries of closed segments within a budget.
"""
