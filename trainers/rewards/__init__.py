"""Reward rules, one file each: what an attempt is worth, by the rows that are stored about it."""
