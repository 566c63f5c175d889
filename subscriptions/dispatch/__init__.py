"""Dispatch: which consumer gets the next message.

Read `strategies` first: one strategy for each kind of queue. `failover` and `key_shared` are the larger
ones, and `assignment` has their pure choices. `consumers` keeps the consumers of one queue in order of
priority and turn. `consumer` is the port that a front end implements for each consumer.
"""
