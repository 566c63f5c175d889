"""The audit trail (`router.audit`) as the HTTP front end fills it and shows it."""
