"""The management API, metrics, the audit trail and events, as their tools read them."""
