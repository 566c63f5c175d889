"""Several workers of one gateway.

`handover` gives a connection to the worker that owns its vhost. `replication` brings users, permissions
and the list of vhosts from worker 0 to the others.
"""
