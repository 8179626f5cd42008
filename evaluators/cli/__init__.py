"""The `evaluators` command."""
