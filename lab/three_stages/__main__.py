"""`python -m lab.three_stages`: go through the steps of the experiment."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from lab import three_stages
from lab.three_stages.sizes import PRESETS
from lab.three_stages.study import Study, lock_folder


def main() -> None:
    """Go through the steps, and print what each took."""
    parser = argparse.ArgumentParser(
        description=three_stages.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu-small")
    parser.add_argument("--model", help="folder or .gguf file (preset h200 has none of its own)")
    parser.add_argument("--device", help="where kernels are judged; cuda:0,cuda:1 …")
    parser.add_argument("--seed", type=int, default=0, help="of tasks, data and trainings")
    parser.add_argument("--budget-s", type=float, help="longest a step may take")
    parser.add_argument(
        "--total-s",
        type=float,
        default=float("inf"),
        help="after this time no step begins or continues; run the command again to resume",
    )
    parser.add_argument("--until", help="last step to do; results are written all the same")
    given = parser.parse_args()
    sizes = PRESETS[given.preset]
    model = str(Path(given.model).absolute()) if given.model else sizes.model
    sizes = replace(sizes, model=model, device=given.device or sizes.device)
    if not sizes.model:
        parser.error(f"preset {given.preset} needs --model FOLDER")
    out = given.out.absolute()
    with lock_folder(out):
        study = Study(out, sizes, given.seed, given.budget_s or sizes.budget_s, given.total_s)
        begun = time.monotonic()
        for steps in study.list_steps():
            with ThreadPoolExecutor(len(steps)) as threads:
                whole = all(list(threads.map(study.do_step, steps)))
            if not whole or given.until in [step.name for step in steps]:
                break
        study.write_result()
        sys.stdout.write(f"{'all':24} {time.monotonic() - begun:10.1f} s → {out / 'result'}\n")


if __name__ == "__main__":
    main()
