"""`python -m trainers` is the `trainers` command."""

from trainers._cli import main

main()
