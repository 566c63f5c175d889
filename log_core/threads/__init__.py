"""Threads of the log: a pool that reports every error, and the mailbox that returns results to the event
loop.
"""
