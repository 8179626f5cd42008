"""Walls around processes that run untrusted code."""
