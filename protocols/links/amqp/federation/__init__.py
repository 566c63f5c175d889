"""Federation over AMQP 0-9-1: exchanges and queues here take messages from upstreams.

`upstreams` reads the parameters, `hops` ends loops. Read `federated` first, then `federated_exchange` and
`federated_queue`. `protocols/links/federation.py` starts and ends the links as policies say.
"""
