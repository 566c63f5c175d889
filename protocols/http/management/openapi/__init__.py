"""GET /api/openapi.json: the management API as OpenAPI 3.1. Read `document` first.

Paths are those of the app's routes. Bodies are those by which the handlers read (`management.bodies`), and
answers are types (`answers`), of which `typed` makes schemas.
"""
