"""`python -m pipelines`: the command line."""

from pipelines.cli.app import main

main()
