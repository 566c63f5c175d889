"""Commands that need no running gateway: `serve`, `config`, `doctor`; those of a data folder or a cluster."""
