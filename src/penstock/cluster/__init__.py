"""A node of a cluster: one log that Kafka keeps, one owner that serves it, standbys that can take over.

`supervisor` starts the node's process again when it ends, and releases the log in its name. `node` is that
process: a standby first, the owner after a claim. `standby` follows the journal and decides when to claim.
`relay` passes the bytes of a standby's clients on to the owner. `replica` is the owner's side: signs of life,
trimming, the position. `settings` makes Kafka's settings from the configuration. Read `node` first.
"""
