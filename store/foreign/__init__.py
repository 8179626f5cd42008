"""Untrusted data from other sources."""
