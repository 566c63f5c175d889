"""The common parts of all HTTP handlers: publishing and taking messages, pages, sorted lists, start
positions.
"""
