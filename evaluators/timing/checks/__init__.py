"""Checks of a session: noise, drift, other threads, impossible times, wrong outputs."""
