"""Pulling over HTTP: long polls, leases, consumers and readers. Read `pull` first."""
