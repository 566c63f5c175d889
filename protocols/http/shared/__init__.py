"""What the handlers of all HTTP APIs share: publishing and taking messages, pages, sorted lists, start
positions.
"""
