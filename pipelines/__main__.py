"""The `pipelines` command, also as `python -m pipelines`."""

from store.commandline import interrupts


def main() -> None:
    """Run the command."""
    interrupts.start("pipelines.cli.app")


if __name__ == "__main__":
    main()
