"""TLS: contexts from the configured files (`contexts`).

The layer of a connection is `net.layers.tls_transport`.
"""
