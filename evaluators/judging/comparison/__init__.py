"""Comparison of a candidate's outputs with those of the reference."""
