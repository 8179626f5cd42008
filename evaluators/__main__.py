"""The `evaluators` command, also as `python -m evaluators`."""

from store.commandline import interrupts


def main() -> None:
    """Run the command."""
    interrupts.start("evaluators.cli.app")


if __name__ == "__main__":
    main()
