"""One virtual host: exchanges, queues, bindings, sessions and the routes through them.

Read `vhost` first; it joins `exchange_methods` and `queue_methods` over the shared `state`.
`connections` lists the connections in a vhost and tells them of changed permissions. `partitions` maps
vhosts to log partitions.
"""
