"""End-to-end tests: real, unmodified clients against a broker process."""
