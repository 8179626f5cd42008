"""The `trainers` command, also as `python -m trainers`."""

from store.commandline import interrupts


def main() -> None:
    """Run the command."""
    interrupts.start("trainers.cli.app")


if __name__ == "__main__":
    main()
