"""Random programs of a protocol's methods, run against penstock and the reference broker at once.

Everything that a client can see must be the same, but for the differences that docs list. `wire` speaks the
protocol and notes what comes; `programs` makes the programs; `rabbitmq` runs and compares them.
"""
