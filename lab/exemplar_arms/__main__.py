"""`python -m lab.exemplar_arms`: go through the steps of the experiment."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from lab import exemplar_arms
from lab.exemplar_arms.sizes import ARMS, PRESETS
from lab.exemplar_arms.study import ArmStudy
from lab.three_stages.study import lock_folder


def main() -> None:
    """Go through the steps, and print what each took."""
    parser = argparse.ArgumentParser(
        description=exemplar_arms.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu-turner")
    parser.add_argument("--model", help="folder or .gguf file (the presets of the model have none)")
    parser.add_argument("--device", help="where kernels are judged; cuda:0,cuda:1 …")
    parser.add_argument("--seed", type=int, default=0, help="of tasks and data")
    parser.add_argument("--seeds", type=int, help="number of seeds of each arm")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed of each arm")
    parser.add_argument(
        "--held-out-tasks", type=int, help="number of held-out tasks of families that train"
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="default: all")
    parser.add_argument(
        "--jobs", type=int, default=1, help="arms and seeds of stage 3 that run side by side"
    )
    parser.add_argument("--workers", type=int, help="judges on each device, of all jobs together")
    parser.add_argument(
        "--total-s",
        type=float,
        default=float("inf"),
        help="after this time no step begins or continues; run the command again to resume",
    )
    parser.add_argument(
        "--earlier", type=Path, help="result/tables of an earlier run, whose verdicts are kept"
    )
    parser.add_argument("--until", help="last step to do; results are written all the same")
    given = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    if not 1 <= given.jobs <= cores:
        parser.error(f"--jobs is from 1 to {cores}, the number of cores")
    sizes = PRESETS[given.preset]
    sizes = replace(
        sizes,
        model=str(Path(given.model).absolute()) if given.model else sizes.model,
        device=given.device or sizes.device,
        held_out_tasks=given.held_out_tasks or sizes.held_out_tasks,
        arms=tuple(given.arms or sizes.arms),
        seeds=given.seeds or sizes.seeds,
        first_seed=given.first_seed,
        jobs=given.jobs,
        workers=given.workers or sizes.workers,
    )
    if not sizes.model:
        parser.error(f"preset {given.preset} needs --model")
    out = given.out.absolute()
    earlier = given.earlier.absolute() if given.earlier else None
    study = ArmStudy(out, sizes, given.seed, sizes.budget_s, given.total_s, earlier)
    study.check_until(given.until)
    with lock_folder(out):
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
