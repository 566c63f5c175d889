"""The log for people: finding messages in it. Read `search` first."""
