"""How many forged messages of workers the judge reads, and how many of them end it (none may).

python benchmarks/forged_messages.py --examples 5000
python benchmarks/forged_messages.py --examples 0 --processes 20 --device cuda

An example is one request whose genuine reply is changed at one to three places, or replaced by
other bytes, before the judge reads it: `--examples` to a candidate's worker, and half as many to a
task's. They run in this process. Everything but a refusal of the worker counts as a death of the
judge and is printed. `--processes` judges real candidates in one judge process, which has to
survive them all. Each candidate changes its own messages at random.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from forged_workers import (
    HOSTILE,
    MODULE,
    TASK_REQUESTS,
    Forge,
    HandleUnderAttack,
    attack_reference,
    packets,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.scheduling.judges.process import JudgeProcess


def main() -> None:
    """Attack the judge and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    deaths = 0
    if options.examples:
        handle = HandleUnderAttack()
        deaths += attack("candidate", handle.requests, handle.attack, options.examples)
        handle.close()
        deaths += attack("task", TASK_REQUESTS, attack_reference, options.examples // 2)
    if options.processes:
        deaths += judge_hostile(options.processes, options.device)
    sys.exit(bool(deaths))


def attack(
    name: str, requests: tuple[str, ...], make_request: Callable[[str, Forge], str], examples: int
) -> int:
    """Forge replies of one kind of worker; return how many ended the judge."""
    outcomes: collections.Counter[str] = collections.Counter()
    deaths: dict[str, str] = {}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(requests), packets())
    def run(request: str, forge: Forge) -> None:
        try:
            outcomes[make_request(request, forge)] += 1
        except Exception as error:
            outcomes["death"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            deaths.setdefault(f"{request} {where.filename}:{where.lineno}", traceback.format_exc())

    run()
    for where, trace in deaths.items():
        print(where, trace, sep="\n")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"{name}: {outcomes.total()} examples, {outcomes['death']} deaths ({counts})")
    return outcomes["death"]


def judge_hostile(count: int, device: str) -> int:
    """Judge candidates that forge messages in real workers; return how many ended the judge."""
    outcomes: collections.Counter[str] = collections.Counter()
    config = Config(protocol="training", draw_shapes=0, baselines=("eager",))
    with JudgeProcess("judge", device, config) as judge:
        pid = judge.pid
        for seed in (random.randrange(1 << 30) for _ in range(count)):
            case = Case(
                **dict.fromkeys(("kernel_id", "task_id", "workload_id"), f"{seed:064x}"),
                code=HOSTILE.format(seed=seed) + MODULE.format(name="ModelNew"),
                task_code=MODULE.format(name="Model"),
                trusted=True,
            )
            row = judge.judge(case)["evaluations"][0]
            outcomes[f"{row['status']} {row['reason'] or ''}".strip()] += 1
            if row["status"] == "evaluator_error":
                print(seed, row["message"], row["log"], sep="\n")
        deaths = int(judge.pid != pid) + outcomes["evaluator_error internal"]
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"real workers on {device}: {outcomes.total()} examples, {deaths} deaths ({counts})")
    return deaths


if __name__ == "__main__":
    main()
