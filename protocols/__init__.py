"""The front ends: one folder per protocol, each codec -> session -> endpoint. They never import one another."""
