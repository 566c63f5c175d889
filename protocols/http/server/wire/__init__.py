"""HTTP on the wire, sans-IO: HTTP/1.1 (`h1`), HTTP/2 (`h2`, in the budgets of `stream_budget`), WebSocket."""
