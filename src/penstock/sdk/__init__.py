"""The client: `penstock.connect`, producers, consumers, readers. Imports no part of the gateway."""
