"""Headline figures of the field, step by step: a folder of SQL files for each."""
