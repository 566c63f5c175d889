"""Search of the past: the records that a pattern would have matched before anybody asked for it.

A backfilled queue or a replay by filter starts with such a search. `history` has the index files and
their format, `_history` matches the records, and `histories` runs searches and keeps them over a
restart. `content_search` finds records for people, by what is in them, and keeps nothing.
`key_walk` is what both have in common.
"""
