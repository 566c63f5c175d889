"""TLS: contexts from the configured files (`contexts`), and the TLS layer of one connection (`transport`)."""
