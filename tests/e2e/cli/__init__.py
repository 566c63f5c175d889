"""The commands, in terminals and in scripts."""
