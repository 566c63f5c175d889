"""TLS: contexts from the configured files (`contexts`). `net.tls_transport` has the layer of a connection."""
