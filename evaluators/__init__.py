"""Evaluators judge kernels: each maps a candidate to rows and never opens the store."""
