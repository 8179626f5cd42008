"""Experiments that run the whole loop; results are in docs/runs."""
