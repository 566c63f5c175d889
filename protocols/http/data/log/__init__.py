"""The log for people: finding messages in it, and one message with its path. Read `search` first."""
