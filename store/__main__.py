"""`python -m store` is the `store` command."""

from store.cli import main

main()
