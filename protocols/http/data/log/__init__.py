"""What the log holds, for people: finding messages in it. Read `search` first."""
