"""The front ends: one folder per protocol, each codec -> session -> endpoint. None imports another."""
