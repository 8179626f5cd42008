"""Lets `python -m evaluators` do what the console script does."""

from evaluators.cli.app import main

main()
