"""The last value of each key of a topic (`table`), and its copy on the disk (`saved_table`)."""
