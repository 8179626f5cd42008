"""Machinery that decides whether an answer is right."""
