"""Parts that several jobs have in common: arguments, frames, progress, the registry, reports and plots."""
