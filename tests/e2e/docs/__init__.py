"""The programs and commands of the pages, run as they stand there."""
