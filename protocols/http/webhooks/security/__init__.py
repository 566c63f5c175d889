"""Security of webhooks: signatures, authentication at the receiver, consent, stored secrets."""
