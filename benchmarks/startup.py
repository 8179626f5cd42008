"""Start-up time of commands, and which GPU libraries they import.

python benchmarks/startup.py --lake DIR

All commands run several times in alternation; the table shows the best and the median time.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

HEAVY = ("torch", "transformers", "trl")
REPORT = f"""
import atexit, sys
atexit.register(lambda: print(
    "loaded:", *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr))
"""


def time_command(room: str, arguments: list[str]) -> tuple[float, str]:
    """Run a command in a fresh process; return its seconds and which GPU libraries it imported."""
    run = f"from {room}.{'cli' if room == 'store' else '_cli'} import main; main()"
    code = f"{REPORT}\nsys.argv[1:] = {arguments!r}\n{run}"
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{room} {' '.join(arguments)} failed\n{done.stderr}")
    return seconds, done.stderr.rpartition("loaded:")[2].strip() or "none"


def main() -> None:
    """Time every command and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True, help="lake to query")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    commands = [
        ("store", ["--help"]),
        ("store", ["query", "--help"]),
        ("store", ["query", "SELECT 1", "--lake", given.lake]),
        ("store", ["query", "SELECT count(*) FROM kernels", "--lake", given.lake]),
        ("pipelines", ["--help"]),
        ("pipelines", ["list"]),
        ("evaluators", ["--help"]),
        ("trainers", ["--help"]),
    ]
    seconds: list[list[float]] = [[] for _ in commands]
    heavy = [""] * len(commands)
    for _ in range(given.rounds):
        for index, (room, arguments) in enumerate(commands):
            took, heavy[index] = time_command(room, arguments)
            seconds[index].append(took)
    print("| command | best s | median s | imports of torch, transformers, trl |")
    print("|---|---|---|---|")
    for (room, arguments), took, loaded in zip(commands, seconds, heavy, strict=True):
        shown = " ".join([room, *arguments]).replace(f" --lake {given.lake}", "")
        print(f"| `{shown}` | {min(took):.2f} | {statistics.median(took):.2f} | {loaded} |")


if __name__ == "__main__":
    main()
