"""Many connections: `__main__` measures one small message each, `churn` clients that come and go."""
