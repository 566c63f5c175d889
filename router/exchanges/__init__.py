"""Exchanges and bindings of one vhost.

Read `exchanges` first: what each type makes of a key. `distribution` has the types that pick one
destination, by hash, weight or chance; `deduplication` and `recent_history` are one type each.
`arguments` checks declarations. `bindings` makes and removes bindings; `feeds` gives each distinct
pattern its feed. `entries` has the records of queues, sessions and bindings that a vhost keeps.
"""
