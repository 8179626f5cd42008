"""Timing sessions, and what their samples say."""
