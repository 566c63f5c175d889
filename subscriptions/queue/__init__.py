"""One queue: its cursor, its consumers, its limits, and when it is served.

Read `queue` first. `limits` applies TTL, length limits and overflow; it is where x-message-ttl is
enforced. `group` is a queue whose kind may be failover or key-shared. `idle_expiry` deletes queues that
nobody used. `empty_check` answers whether a queue is empty now.
"""
