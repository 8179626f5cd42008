"""Selects the rows of a dataset: tasks, scores, draws, and the rules for every dataset."""
