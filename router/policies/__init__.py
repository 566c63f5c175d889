"""Policies: settings for all queues or exchanges whose names match a pattern.

`policies` stores them and finds the one that applies. `definitions` has the keys: names, value types,
the kinds of queue that know each, and how policies and operator policies merge; a new key goes there.
`retention` applies traffic retention to exchanges and queues.
"""
