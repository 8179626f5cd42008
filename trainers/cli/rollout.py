"""`trainers rollout`: several policies attempt the tasks of a dataset, and the judge decides."""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from evaluators.judge import Config as JudgeConfig
from evaluators.scheduling.pool import Pool
from pipelines import ExemplarOptions
from store.commandline import echo
from store.commandline.echo import show_progress
from store.commandline.escape import quote_name
from store.commandline.members import Common, Count, DeviceOption
from store.endpoint import Keys
from store.errors import FlywheelError
from trainers.policies import interface
from trainers.policies.interface import Budget, EndpointFailed, Positive, Sampling, Serving
from trainers.rollouts.waves import Config, Search
from trainers.training import judging

_DEFAULT = Common()
_REASONS = 3
_CONFIG = Config()
_SAMPLING = Sampling()
_SERVING = Serving()
_EVALUATION = JudgeConfig()
_SEARCH = Search()
_EXEMPLARS = ExemplarOptions()


def rollout(
    *,
    dataset: str,
    policy: Annotated[list[str], Parameter(negative="", consume_multiple=False)],
    config: Annotated[Config, Parameter(name="*")] = _CONFIG,
    sampling: Annotated[Sampling, Parameter(name="*")] = _SAMPLING,
    search: Annotated[Search, Parameter(name="*")] = _SEARCH,
    draw: Annotated[ExemplarOptions, Parameter(name="draw", show=False)] = _EXEMPLARS,
    limit: Count | None = None,
    judge: bool = True,
    device: DeviceOption = "auto",
    workers: int = 1,
    serving: Annotated[Serving, Parameter(name="*")] = _SERVING,
    budget_tokens: Count | None = None,
    budget_usd: Positive | None = None,
    evaluation: Annotated[JudgeConfig, Parameter(name="evaluation", show=False)] = _EVALUATION,
    common: Common = _DEFAULT,
) -> None:
    """Let policies attempt the tasks of a dataset; store and judge what they write.

    Every attempt is stored immediately, including completions without code. You can interrupt the
    command at any time and run it again to resume; it samples only missing attempts. The exit code
    is 1 if an endpoint refuses requests or is unavailable, or if all attempts fail; earlier
    attempts stay stored.

    With --rounds, the command searches without training: each round shows kernels that earlier
    rounds have stored, chosen by --strategy.

    Examples:
      trainers rollout --dataset sft --policy hf:runs/sft/final --attempts 4
      trainers rollout --dataset rl-prompts --policy http://localhost:8000/v1#qwen
      trainers rollout --dataset rl-prompts --policy hf:FOLDER --rounds 4 \\
        --attempts 32 --strategy bucket --strategy none
      trainers rollout --dataset sft --policy https://api.example.com/v1#large \\
        --no-judge --budget-usd 5 --usd-per-mtok-in 0.5 --usd-per-mtok-out 2

    Parameters
    ----------
    dataset
        Dataset made by `pipelines run`: a folder, NAME, NAME@TAG or NAME@SNAPSHOT.
    policy
        hf:FOLDER, hf:HUB/NAME, hf:FILE.gguf, http(s)://HOST/v1#MODEL or scripted:FILE.jsonl.
        Repeat it for more policies.
    config
        Number of attempts.
    sampling
        Options of sampling.
    search
        Options of a search.
    draw
        Options of a search's exemplars, such as --draw.exemplars 3 (`pipelines show
        contrastive-batch`).
    limit
        Use only the first N prompts.
    judge
        Judge the kernels after every wave. With --no-judge, make all attempts and judge nothing;
        `evaluators run` can judge later.
    device
        Device to judge kernels on: cpu, cuda, cuda:0 … or a Ray cluster: ray:HOST:PORT.
    workers
        Number of judges on the CPU or on each GPU. Those of a GPU take turns at timing.
    serving
        Options of local models and endpoints.
    budget_tokens
        Maximum number of tokens from endpoints, including prompts. A request that could exceed it
        is not sent. Stored attempts of earlier commands count if they are of the same search, or at
        the same prompts with the same options of sampling; each counts its prompt, even if one
        request brought several.
    budget_usd
        Maximum cost of endpoints in USD, by the given prices. Stored attempts of earlier commands
        count as for --budget-tokens, at the price that their rows have.
    evaluation
        Settings of the judge, such as --evaluation.calls 8 (`evaluators run --help`).
    """
    import store
    from trainers.rollouts import waves
    from trainers.rollouts.prompts import load_prompts
    from trainers.rollouts.search import run_search

    if budget_usd is not None and serving.prices.usd(1, 1) is None:
        raise FlywheelError(
            "--budget-usd needs prices", "Give --usd-per-mtok-in and --usd-per-mtok-out."
        )
    if search.rounds is not None and not judge:
        raise FlywheelError(
            "a search shows measured kernels, so --rounds needs the judge", "Omit --no-judge."
        )
    if search.rounds is None and draw != _EXEMPLARS:
        raise FlywheelError(
            "options of a search need --rounds: --draw.*",
            "Add --rounds N to search, or omit them.",
        )
    serving = replace(serving, budget=Budget(tokens=budget_tokens, usd=budget_usd))
    with store.open(common.lake) as lake:
        prompts = load_prompts(lake, dataset, limit)
    endpoints = [word for word in policy if word.startswith(("http:", "https:"))]
    Keys(serving.key_env).check_used(interface.split_endpoint(word)[0] for word in endpoints)
    opened = [interface.open_policy(word, serving) for word in policy]
    policies = list({policy.row["policy_id"]: policy for policy in opened}.values())
    # A device that is not there is refused before anything is sampled.
    judges = judging.make_pool(common.lake, device, evaluation, workers) if judge else None
    with ExitStack() as stack:
        progress = stack.enter_context(show_progress(quiet=common.quiet))

        @functools.cache
        def start_judges() -> Pool:
            # Only when there is something to judge.
            assert judges is not None
            return stack.enter_context(judges)

        if search.rounds is not None:
            result = run_search(
                common.lake,
                policies,
                prompts,
                sampling,
                config,
                search,
                draw,
                start_judges(),
                progress,
            )
        else:
            result = waves.run_rollout(
                common.lake,
                policies,
                prompts,
                sampling,
                config,
                start_judges if judge else None,
                progress,
                told={"dataset": dataset, "limit": limit},
            )

    losses = [one for tally in result.tallies if isinstance(one := tally.stopped, EndpointFailed)]
    lost = losses[-1] if losses else None
    for tally in result.tallies:
        if result.run_id is not None and not common.quiet:
            cost = f", {tally.cost_usd:.4f} USD" if tally.cost_usd is not None else ""
            echo.print_note(
                f"{quote_name(tally.name)}: {tally.attempts} attempts, {tally.no_kernel} without "
                f"code, {tally.failed} failed, {tally.kernels} kernels, {tally.correct} correct, "
                f"{tally.tokens} tokens{cost}"
            )
        for why, count in tally.reasons.most_common(_REASONS):
            echo.print_foreign(f"{count} failed: {why}", sys.stderr)
        if tally.stopped is not None and tally.stopped is not lost:
            echo.print_note(f"{quote_name(tally.name)} stopped early:")
            echo.print_foreign(str(tally.stopped), sys.stderr)
    if result.run_id is None:
        is_stopped = any(tally.stopped for tally in result.tallies)
        what = "no attempt" if is_stopped else "nothing left to attempt"
        echo.print_result(f"{what} at snapshot {result.snapshot}")
    else:
        echo.print_result(str(result))
    if lost is not None:
        raise lost
    attempts = sum(tally.attempts for tally in result.tallies)
    if attempts and attempts == sum(tally.failed for tally in result.tallies):
        raise FlywheelError(
            f"all {attempts} attempts failed, for the reasons above",
            "Remove the cause, then run the same command again. It repeats failed attempts.",
        )
