"""The machine that kernels are timed on: what it is, and what else it does meanwhile."""
