"""`python -m trainers` is the `trainers` command."""

from trainers.cli.app import main

main()
