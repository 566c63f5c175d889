"""Files and folders: every operation that the log asks of the operating system.

`files` is the port: a test, or another kind of storage, replaces it. `layout` has the names of all files
and the head that each begins with. `manifest` names the first and the last segment, and says how the
last stop ended. `segment_folders` says which disk a segment lies on. `space_release` frees large files in
small steps, `free_space` watches the space that is left, and `lock` keeps a second process out.
"""
