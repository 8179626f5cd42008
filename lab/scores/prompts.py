"""The training rows and the prompts of the arms, by the pipeline scored-settings.

    python -m lab.scores.prompts OUT        # OUT/lakes → OUT/rows.parquet and OUT/arms.parquet

The pipeline is a member in ./flywheel/pipelines of this folder. Both datasets are recorded in their
lakes and written as folders, OUT/rows and OUT/arms; the Parquet files are what a GPU needs of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.scores.budget import say

_COLUMNS = {
    "rows": ("task_id", "prompt", "completion", "form", "right_scores", "fastest", "copies"),
    "arms": ("prompt", "settings", "shown_scores", "family", "operation", "places"),
}


def make_prompts(out: Path, options: Sequence[str] = ()) -> dict[str, int]:
    """Run the pipeline on both lakes; return the number of rows of each dataset.

    Args:
        out: Folder of the run.
        options: Options of the pipeline.
    """
    import pyarrow.parquet as pq

    folder = Path(__file__).parent
    counts: dict[str, int] = {}
    for name, split, purpose in (("rows", "train", "train"), ("arms", "test", "eval")):
        subprocess.run(
            [
                *(sys.executable, "-m", "pipelines", "run", "scored-settings", "--quiet"),
                *("--lake", str((out / "lakes" / split).absolute()), "--purpose", purpose),
                *("--name", f"scores-{name}", "--out", str((out / name).absolute()), *options),
            ],
            check=True,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder.parents[1])},
        )
        table = pq.read_table(sorted((out / name).glob("data/**/*.parquet")))
        counts[name] = table.num_rows
        pq.write_table(
            table.select(("prompt_id", *_COLUMNS[name])),
            out / f"{name}.parquet",
            compression="zstd",
        )
    return counts


def main() -> None:
    """Make both datasets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    say(f"rows: {make_prompts(given.out)}")


if __name__ == "__main__":
    main()
