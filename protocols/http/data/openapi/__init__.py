"""The OpenAPI document of the data plane, in parts. `document` joins them."""
