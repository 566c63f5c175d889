"""The HTTP server: HTTP/1.1, HTTP/2 and WebSocket, down to handlers that get a `Request` and give a
`Response`.

Read `messages` and `endpoint` first. `h1`, `h2` and `websocket` are sans-IO. `routes` finds the handler;
`login` checks the credentials; `workers` passes requests to other workers of the gateway.
"""
