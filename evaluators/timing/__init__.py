"""Timing sessions, and the statistics of their samples."""
