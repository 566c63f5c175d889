"""The data plane over HTTP: publish, pull with leases, live tail."""
