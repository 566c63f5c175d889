"""Recovery: make the files consistent at a start, before anything is served.

Read `recovery` first: load the checkpoint, scan the segments behind it, rebuild feeds, cut a torn end.
`checkpoint` writes and loads the file with all tables. `salvage` repairs a damaged segment on request.
"""
