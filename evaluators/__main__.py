"""Lets `python -m evaluators` do what the console script does."""

from evaluators._cli import main

main()
