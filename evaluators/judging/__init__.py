"""Decide whether a candidate is correct."""
