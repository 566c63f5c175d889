"""Nodes and brokers of a cluster, and their faults."""
