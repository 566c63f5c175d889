"""TLS: contexts from the configured files (`contexts`). The layer of a connection is `net.tls_transport`."""
