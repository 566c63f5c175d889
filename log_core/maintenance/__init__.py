"""Maintenance of closed segments: retention, compaction, rewriting, deletion, checks.

`housekeeping` decides on the loop what happens next; `upkeep` does it on a thread of its own. It also
deletes segments. `retention` says how much traffic is kept for replay, `feed_retention` adds longer
times for single feeds, `leases` protects what external readers still need. `sealing` with `_seal`
rewrites a segment with the records that are still needed. `compaction` with `_compact` keeps the last
record of each key. `scrub` reads closed segments again to find damage.
"""
