"""Links: what the gateway itself moves to and from other brokers, or between its own vhosts.

A link (`link`) runs in the worker of its vhost, connects again after a fault, and says how it is. Shovels of
AMQP 0-9-1 and federation are in `amqp`, shovels of AMQP 1.0 in `amqp10`, those by the native protocol in
`native`, bridges in `mqtt`. A link talks to the gateway's own side as any client does, over a pair of sockets
(`local`), so that limits, permissions, confirms and dead letters hold for it.

Read first: `link`, then `amqp/shovel`. See ADR 0021.
"""
