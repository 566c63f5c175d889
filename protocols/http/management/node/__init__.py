"""The node in the management API: overview, health checks, host figures, certificates, feature flags."""
