"""The seed under which tasks and candidates construct their modules."""

WEIGHT_SEED = 42
"""Public: candidates match weights by it."""
