"""TLS: contexts from the configured files (`contexts`). The layer of one connection is `net.tls_transport`."""
