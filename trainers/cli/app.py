"""The `trainers` command: list and show trainers, run one, roll out policies, rescore a run."""

from __future__ import annotations

import dataclasses
import functools
import json
import secrets
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import store
from evaluators.judge import Config as JudgeConfig
from evaluators.scheduling.pool import Pool
from pipelines import ExemplarOptions
from store.commandline import echo, members
from store.commandline.echo import show_progress
from store.commandline.escape import quote_name
from store.commandline.members import (
    CommandApp,
    Common,
    Count,
    DeviceOption,
    Format,
    Member,
    make_room_app,
)
from store.dossier.pages import MOST_IDS, choose_id
from store.endpoint import Keys
from store.errors import FlywheelError, UnknownName
from trainers.policies import interface
from trainers.policies.interface import Budget, EndpointFailed, Positive, Sampling, Serving
from trainers.rollouts import waves
from trainers.rollouts.prompts import load_prompts
from trainers.rollouts.waves import Config, Search
from trainers.runs import job, processes
from trainers.runs.job import Job
from trainers.training import judging

_DEFAULT = Common()
_REASONS = 3
_CONFIG = Config()
_SAMPLING = Sampling()
_SERVING = Serving()
_EVALUATION = JudgeConfig()
_SEARCH = Search()
_EXEMPLARS = ExemplarOptions()

app = make_room_app(
    "trainers",
    """Train policies on datasets of the lake, and record every attempt and every checkpoint.

To train on several GPUs, start the same command with torchrun or accelerate. Only rank 0 writes to
the lake.""",
    [
        "trainers list",
        "trainers run sft --preset tiny",
        "trainers run sft --model FOLDER --dataset sft@v1 --lora 16",
        "trainers run self-supervised --model runs/sft/NAME/final --rounds 3",
        "torchrun --nproc-per-node 8 -m trainers run sft --model FOLDER --out runs/8",
    ],
)
members.add_list(app, "trainers")
run_app = CommandApp(name="run", help="Train a policy, or resume an interrupted run.")
app.command(run_app)


def main() -> None:
    """Run the `trainers` command."""
    members.run(app, *groups)


@app.command
def show(name: str, /, *, common: Common = _DEFAULT) -> None:
    """Explain one trainer: what it does, its options with their defaults, and its presets.

    Parameters
    ----------
    name
        Name of the trainer.
    """
    trainer = members.find_member("trainers", name)
    module = trainer.load("Config", "run")
    lines = [f"{trainer.name}: {trainer.about}", *members.doc_lines(trainer.file), "", "Options"]
    lines += members.list_options(module.Config)
    for preset, values in getattr(module, "PRESETS", {}).items():
        lines += ["", f"--preset {preset}"]
        for field, value in values.items():
            text = " ".join(value) if isinstance(value, tuple) else json.dumps(value).strip('"')
            lines.append(f"  {members.name_option(module.Config, field)} {text}")
    lines += ["", f"`trainers run {trainer.name} --help` explains each option."]
    echo.print_lines("\n".join(lines))


def _make_command(trainer: Member) -> Callable[..., None]:
    module = trainer.load("Config", "run")
    presets: Mapping[str, dict[str, Any]] = getattr(module, "PRESETS", {})
    preset = members.find_option(sys.argv[1:], "--preset")
    if preset is not None and preset not in presets:
        raise UnknownName.among(f"preset of {trainer.name}", preset, presets)
    values = {} if preset is None else presets[preset]
    config_type: type[Any] = module.Config
    if values:
        # The preset's values become defaults, which --help shows.
        hints = typing.get_type_hints(config_type, include_extras=True)
        body = {
            "__annotations__": {name: hints[name] for name in values},
            "__module__": config_type.__module__,
            "__doc__": config_type.__doc__,
        } | values
        config_type = type(config_type.__name__, (config_type,), body)
        config_type = dataclasses.dataclass(frozen=True, kw_only=True)(config_type)

    def command(
        *,
        config: Any = None,
        preset: str | None = None,  # read before
        at: str | None = None,
        out: Path | None = None,
        resume: bool = False,
        common: Common = _DEFAULT,
    ) -> None:
        config = config or config_type()
        options = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        if "trl" in values and options["trl"] != values["trl"]:
            options["trl"] = (*values["trl"], *options["trl"])
        if out is None:
            if resume:
                raise FlywheelError("--resume needs the folder of the run", "Name it with --out.")
            if processes.count_processes() > 1:
                raise FlywheelError(
                    f"{processes.count_processes()} processes need one folder that they all know",
                    "Name it with --out.",
                )
            # Two runs may begin in one second.
            moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            out = Path("runs") / trainer.name / f"{moment}-{secrets.token_hex(2)}"
        with show_progress(quiet=common.quiet or not processes.is_main()) as progress:
            job = Job(
                name=trainer.name,
                lake_url=common.lake,
                out=out,
                at=at,
                resume=resume,
                quiet=common.quiet,
                progress=progress,
            )
            line = module.run(job, module.Config(**options))
        if processes.is_main():
            echo.print_result(str(line))

    def option(help: str, kind: type = str) -> Any:
        return Annotated[kind | None, Parameter(help=help, show_default=False)]

    command.__annotations__ |= {
        "config": Annotated[config_type | None, Parameter(name="*")],
        "preset": option(
            f"Start from this set of options: {', '.join(presets) or 'none exist'}. Options on the "
            "command line override it."
        ),
        "at": option("Read the lake at this tag, snapshot number or ISO time (default: newest)."),
        "out": option("Folder of the run (default: ./runs/NAME/TIME).", Path),
        "resume": Annotated[
            bool,
            Parameter(help="Resume the run in --out from its last checkpoint.", negative=""),
        ],
        "common": Common,
    }
    return command


@app.command
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
    workers: Count = 1,
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
            result = waves.run_search(
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


def _find_run(lake: store.Lake, run: str) -> str:
    """Return the id of a run with attempts, by a prefix of it or its name."""
    matches = lake.run(
        "SELECT DISTINCT run_id FROM generations WHERE starts_with(run_id, $1) "
        "OR run_id IN (SELECT run_id FROM runs WHERE name = $1) "
        f"ORDER BY run_id LIMIT {MOST_IDS}",
        [run],
    )
    return choose_id(
        "run with attempts",
        run,
        [str(row["run_id"]) for row in matches.rows()],
        '`store query "SELECT run_id, count(*) FROM generations GROUP BY run_id"` lists them.',
    )


@app.command
def rescore(
    run: str,
    /,
    *,
    rule: str = "cuda-l1",
    option: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    name: str | None = None,
    at: str | None = None,
    verify: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Compute the rewards of a run's attempts under a rule, from stored verdicts and timings.

    This runs no kernels and needs no GPU. It appends rows under the rule's name and keeps the rows
    that the run was trained with. The view run_curves shows both.

    Examples:
      trainers rescore 0199c2 --rule milestone
      trainers rescore 0199c2 --rule cuda-l1 --option clip=3 --name cuda-l1-clip-3
      trainers rescore 0199c2 --rule cuda-l1 --verify

    Parameters
    ----------
    run
        Name of the run, or its id or a prefix of it.
    rule
        Name of a rule: a file of trainers/rewards or ./flywheel/rewards.
    option
        Option of the rule, as NAME=VALUE. Repeat it for more options.
    name
        Store the rewards under this name (default: the rule's name).
    at
        Use verdicts and timings as of this tag, snapshot number or ISO time (default: newest).
    verify
        Recompute each stored reward at its own snapshot and list those that differ; store nothing.
    dry_run
        Print what would be stored; store nothing.
    format
        Format of the rewards per step, or of those that differ.
    """
    import pyarrow as pa

    from store.commandline import display
    from trainers.rewarding import scoring

    with store.open(common.lake, at) as lake:
        run_id = _find_run(lake, run)
        known = scoring.load_rule(rule)
        stored_as = dataclasses.replace(known, name=name or known.name)
        if verify:
            compared = scoring.verify_rewards(lake, run_id, stored_as)
            if compared.different:
                display.write_rows(pa.Table.from_pylist(compared.different), format)
                raise FlywheelError(
                    f"{len(compared.different)} of {compared.rewards} rewards of {rule} differ",
                    "Stored rows do not change, so the rule has changed: increase its VERSION.",
                )
            same = compared.rewards - compared.other_lakes
            echo.print_result(f"{same} of {compared.rewards} rewards of {rule} are unchanged")
            if compared.other_lakes:
                echo.print_note(f"{compared.other_lakes} were computed at another lake's snapshot")
            return
        terms = scoring.configure_rule(known, job.parse_values("option", option))
        query = (
            "SELECT count(*) AS n FROM rewards "
            "WHERE run_id = $1 AND rule = $2 AND rule_version = $3"
        )
        [row] = lake.run(query, [run_id, stored_as.name, known.version]).rows()
        if row["n"]:
            raise FlywheelError(
                f"run {run_id} has {row['n']} rewards under {stored_as.name} {known.version}",
                "--verify recomputes them; --name stores others under a different name.",
            )
        scored = scoring.rescore_run(lake, run_id, stored_as, terms)
    names = ("step", "raw", "smoothed")
    by_step = (
        pa.table({name: [row[name] for row in scored.rows] for name in names})
        .group_by("step")
        .aggregate([("raw", "count"), ("raw", "mean"), ("smoothed", "mean")])
        .rename_columns(["step", "rewards", "raw", "smoothed"])
        .sort_by("step")
    )
    display.write_rows(by_step, format)
    echo.print_note(", ".join(f"{key} {count}" for key, count in scored.counts.items()))
    if dry_run:
        echo.print_note("nothing stored (--dry-run)")
        return
    with store.writer(common.lake, author="trainers rescore") as writer:
        snapshot = writer.append(
            {"rewards": scored.rows},
            f"rewards of run {run_id} under {stored_as.name} {known.version}",
        )
    echo.print_note(f"rewards +{len(scored.rows)} → snapshot {snapshot}")


@app.command
def replay(
    run: str,
    /,
    *,
    step: int,
    micro_batch: int | None = None,
    model: Path | None = None,
    beta: float | None = None,
    epsilon: float | None = None,
    mask_truncated: bool | None = None,
    trl: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    tolerance: Positive | None = None,
    train: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Compute a step of `trainers run contrastive` again from its stored tokens and verdicts.

    TRL computes advantages, log-probs, loss, gradients and metrics with its own code; nothing is
    sampled or judged. Each figure is printed beside the one that the run logged. If a step began
    between two checkpoints, the steps from the last checkpoint are trained again first.

    On the same device and software, a replay in float32 is equal bit for bit. The exit code is 1 if
    a figure differs by more than the tolerance. With other options, the figures say what the step
    would have been, and the exit code is 0.

    Examples:
      trainers replay 0199c2 --step 7
      trainers replay 0199c2 --step 7 --beta 0.1 --trl loss_type=dapo
      trainers replay 0199c2 --step 7 --micro-batch 2
      trainers replay 0199c2 --step 7 --train --beta 0.1 --out runs/beta-0.1

    Parameters
    ----------
    run
        Name of the run, or its id or a prefix of it.
    step
        Number of the step, from 0: `generations.step`.
    micro_batch
        Compute only this forward and backward pass of the step, from 0. Loss and gradient norm are
        its part of those of the step.
    model
        Folder of the policy that the step began with, or of the run if it has moved (default: as
        recorded).
    beta
        Weight of the KL divergence (default: as in the run).
    epsilon
        Clip the probability ratio to 1 ± this (default: as in the run).
    mask_truncated
        Exclude truncated answers from the loss (default: as in the run).
    trl
        Setting of TRL's own configuration, as KEY=VALUE. Repeat it for more settings.
    tolerance
        Largest difference, relative to a figure or to 1 (default: 1e-5, or 0.02 for a run in bf16).
    train
        Train through all later recorded steps, too, without sampling, and write checkpoints to
        --out.
    out
        Folder for --train; a new one.
    format
        Format of the figures.
    """
    import pyarrow as pa

    from store.commandline import display
    from trainers import contrastive

    if train != (out is not None):
        raise FlywheelError("--train and --out go together", "Give both, or neither.")
    if train and micro_batch is not None:
        raise FlywheelError("--micro-batch computes a part of a step", "Omit it, or omit --train.")
    if out is not None and out.exists():
        raise FlywheelError(f"{out} exists", "Name a new folder with --out.")
    with store.open(common.lake) as lake:
        run_id = _find_run(lake, run)
    given = {"beta": beta, "epsilon": epsilon, "mask_truncated": mask_truncated, "trl": trl or None}
    changes = {name: value for name, value in given.items() if value is not None}
    with show_progress(quiet=common.quiet or not processes.is_main()) as progress:
        job = Job(
            name="contrastive",
            lake_url=common.lake,
            out=out or Path("replay"),
            quiet=common.quiet,
            progress=progress,
        )
        replayed = contrastive.replay(
            job, run_id, step, changes, micro_batch=micro_batch, model=model, train=train
        )
    if not processes.is_main():
        return
    columns = ("step", "figure", "logged", "replayed", "difference")
    rows = [{name: row[name] for name in columns} for row in replayed.figures]
    display.write_rows(pa.Table.from_pylist(rows), format)
    for note in replayed.notes:
        echo.print_note(note)
    if train:
        echo.print_note(f"trained on {len({row['step'] for row in rows})} recorded steps → {out}")
    if changes:
        return
    compared = [row for row in replayed.figures if row["difference"] is not None]
    allowed = tolerance or (2e-2 if replayed.settings.get("bf16") else 1e-5)
    beyond = [row for row in compared if not row["difference"] <= allowed * max(1.0, row["scale"])]
    if beyond:
        raise FlywheelError(
            f"{len(beyond)} of {len(compared)} figures differ by more than {allowed:g}: "
            + ", ".join(row["figure"] for row in beyond),
            "The notes above say what differs from the run. --tolerance allows more.",
        )
    largest = max(compared, key=lambda row: row["difference"], default=None)
    if largest is None or largest["difference"] == 0:
        echo.print_note(f"{len(compared)} figures are equal bit for bit")
    else:
        echo.print_note(
            f"{len(compared)} figures differ by at most {largest['difference']:.3g} "
            f"({largest['figure']})"
        )


if __name__ == "__main__":
    main()


groups = [members.Group(run_app, "trainers", _make_command)]
"""Commands with one subcommand per member."""
