"""Definitions, solutions, workloads and traces in the form of flashinfer-bench."""
