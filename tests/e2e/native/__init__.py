"""The native protocol by clients that were written from its page alone."""
