"""Topic filters and subscriptions of a session: `filters`, `filterset`, and `shared` for shared
subscriptions.
"""
