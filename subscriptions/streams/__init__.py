"""Streams: queues whose messages stay, and the readers of them.

Read `stream` first. `subscription` is a named place in a stream that settles messages. `replay` reads a
queue again without taking from it. `lag` says how far behind subscriptions are.
"""
