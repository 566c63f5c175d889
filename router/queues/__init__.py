"""Queues as the router knows them: arguments, dead letters, start positions, named subscriptions.

`arguments` checks x-arguments of a declaration. `dead_letters` routes messages that leave a queue
undone. `start_position` parses times and offsets; `backfill` begins a new queue in the past.
`subscriptions` owns the named subscriptions of streams. Their behaviour at run time is in the package
`subscriptions`.
"""
