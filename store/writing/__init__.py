"""Append rows: bundles, the spool, group commits, bulk loads."""
