"""The client: `penstock.connect`, producers, consumers, readers. Imports no part of the gateway.

Read `client` first. It makes what is in `producing`, `consuming` and `tables`, over one `connection`.
"""
