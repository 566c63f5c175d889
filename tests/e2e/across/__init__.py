"""Behaviour that is the same by every protocol, and messages that cross protocols."""
