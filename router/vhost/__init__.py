"""One virtual host: exchanges, queues, bindings, sessions and the routes through them.

Read `vhost` first; it joins `exchange_methods` and `queue_methods` over the shared `state`.
`connections` lists the connections in a vhost (`_connections`: they come and go) and tells them of changed
permissions. `partitions` maps vhosts to log partitions.
"""
