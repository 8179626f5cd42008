"""The `store` command, also as `python -m store`."""

from store.commandline import interrupts


def main() -> None:
    """Run the command."""
    interrupts.start("store.cli.app")


if __name__ == "__main__":
    main()
