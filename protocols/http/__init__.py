"""HTTP front end: its own server for HTTP/1.1 and HTTP/2, and what it serves."""
