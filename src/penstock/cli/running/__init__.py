"""Commands about a running gateway. Read `nouns`: how they are declared; then `manage`."""
