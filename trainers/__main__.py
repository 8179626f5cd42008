"""The commands `trainers`, also as `python -m trainers`, and `kf`."""

from store.commandline import interrupts


def main() -> None:
    """Run the command."""
    interrupts.start("trainers.cli.app")


def kf() -> None:
    """Run the command for every day."""
    interrupts.start("trainers.cli.kf")


if __name__ == "__main__":
    main()
