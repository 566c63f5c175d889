"""The way of a publish through one vhost.

Read `publishing` first: route tables per user, what a miss asks for, and publishes from Python.
`resolve` computes a route: all exchanges that are reachable, and the feeds that match. `capacity` asks
whether queues that may refuse have room. `refused_numbers` keeps the order of numbered publishers.
`direct_replies` are addresses of requesters. `firehose` copies traffic for inspection.
"""
