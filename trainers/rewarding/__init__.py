"""Rewards as pure functions of stored rows."""
