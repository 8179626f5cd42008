"""Sampling from policies in waves, and the rows that it leaves."""
