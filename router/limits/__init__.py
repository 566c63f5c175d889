"""Limits of vhosts and users: counts, backlog and rates.

`limits` counts connections, channels and queues. `backlog_quotas` bounds how much of the log a vhost
holds. `rate_quotas` bounds publishing per second, with `token_buckets`.
"""
