"""Experiments that use the rooms and are not part of the package."""
