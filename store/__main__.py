"""`python -m store` is the `store` command."""

from store.cli.app import main

main()
