"""Replication of the data folder: each change of it is an entry of a journal that other machines keep.

`entries` has the bytes of one entry. `fence` decides which entries count and who owns the journal. `journal`
is the port to the system that keeps the entries. `owner` appends them, and knows how far they are kept.
`files` makes an entry of each operation on the folder. `committer` lets confirms wait for the journal
instead of the disk. `mirror` makes the same folder on another machine. `position` notes how far that is.
Read `fence` first.
"""
