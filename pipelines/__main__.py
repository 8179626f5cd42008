"""`python -m pipelines`: the command line."""

from pipelines._cli import main

main()
