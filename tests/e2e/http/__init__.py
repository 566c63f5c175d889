"""HTTP: publish, pull, tails, WebSocket, webhooks, and requests of other sites."""
