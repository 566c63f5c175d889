"""Publishing over HTTP: single and batched messages, destinations, transactions, half messages, delays.

Read `publish` first, then `destinations`.
"""
