"""The score of the judge: which wrong kernels it refuses, and which right ones.

    python benchmarks/judge_score.py sample [--write]
    python benchmarks/judge_score.py judge --out DIR [--device cpu|cuda] [--processes N]
        [--gpuemu FOLDER] [--liger FOLDER] [--flaggems FOLDER] [--filtered FOLDER]
        [--kernelbench FOLDER] [--most-each 2] [--mutants N] [--honest N] [--only KIND …]
        [--limit-s S] [--plain-check FOLDER] [--precision torch_default]
    python benchmarks/judge_score.py report DIR …
    python benchmarks/judge_score.py detectors [--kernelbench-com FOLDER] [--pygpubench FOLDER]
        [--sol-execbench FOLDER]

`judge` judges mutants of the honest kernels of this repository, its adversarial kernels, its honest
kernels, and public corpora whose checkouts it is given. Every result is a line of
DIR/results.jsonl, so a run that is stopped or reaches --limit-s is resumed by the same command.
All of their code runs in the judge's sandbox. A mutant counts if it runs and if its answer differs
from the task's in double precision by more than the tolerance, on an input of the task's own shape
or of another one; its original must be right on the same input. The comparison shares no code with
the judge. In the same process, 5 trials with a tolerance of 1e-2 are KernelBench's rule.
--plain-check runs KernelBench's own check for published solutions, in a process without a sandbox,
and stores why it refuses one: its answer is wrong, or the check can neither build nor call it.

`sample` judges the fixed sample of scoring/sample.json on a processor and prints what has changed
since; --write stores the result with the versions of judge, detectors and tolerances. `report`
prints the tables of results. `detectors` searches labelled texts, which needs no GPU, and runs
kernelguard beside if it is installed. docs/judge-score.md has the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scoring import corpora, items, judging, tables, texts
from scoring.items import Item
from scoring.versions import read_versions

SAMPLE = Path(__file__).with_name("scoring") / "sample.json"
RESULTS = "results.jsonl"
SIZES = {"mutant": 120, "cheat": 50, "honest": 30}
"""Items of the fixed sample by kind."""


def list_items(options: argparse.Namespace) -> list[Item]:
    """Return the items that the options name; corpora first, then cheats, mutants, honest ones."""
    chosen: list[Item] = []
    for name, read in corpora.KERNELS.items():
        folder = getattr(options, name)
        if folder is not None:
            # In turns of levels and languages, so that a run that is cut short has some of each.
            chosen += items.choose(list(read(folder)), 10**6)
    honest = list(items.list_honest(options.device))
    mutants = list(items.list_mutants(options.device, options.most_each, honest))
    chosen += items.list_cheats(options.device)
    chosen += items.choose(mutants, options.mutants)
    chosen += items.choose(honest, options.honest)
    return [one for one in chosen if not options.only or one.kind in options.only]


def judge_all(options: argparse.Namespace) -> None:
    """Judge what is missing, and print the tables."""
    out = options.out / RESULTS
    judging.judge_items(
        list_items(options),
        options.device,
        out,
        options.processes,
        options.limit_s,
        options.plain_check,
        options.precision,
    )
    print_report([out])


def print_report(files: Sequence[Path]) -> None:
    """Print the tables of files of results."""
    rows = tables.select_newest(row for file in files for row in judging.read_rows(file))
    tables.print_score(rows)
    tables.print_public(rows)


def search_all(options: argparse.Namespace) -> None:
    """Search the labelled texts, and print the tables."""
    found: list[corpora.LabelledText] = []
    for name, read in corpora.TEXTS.items():
        folder = getattr(options, name)
        if folder is not None:
            found += read(folder)
    own = [one for device in ("cpu", "cuda") for one in items.list_honest(device)]
    own += [one for device in ("cpu", "cuda") for one in items.list_cheats(device)]
    found += corpora.read_texts(list({one.name: one for one in own}.values()))
    texts.print_texts(texts.search_texts(found))


def read_sample() -> dict[str, Any]:
    """Return the stored sample: versions, seconds, and a row for each item."""
    return json.loads(SAMPLE.read_text())


def choose_sample(results: Path) -> list[str]:
    """Return the names of a new sample: of mutants, those that count."""
    rows = tables.select_newest(judging.read_rows(results))
    counted = {row["item"] for row in rows if row.get("counted")}
    honest = list(items.list_honest("cpu"))
    groups = {
        "mutant": [one for one in items.list_mutants("cpu", 2, honest) if one.name in counted],
        "cheat": [one for one in items.list_cheats("cpu") if "slow" not in one.head],
        "honest": honest,
    }
    return [one.name for kind, size in SIZES.items() for one in items.choose(groups[kind], size)]


def find_items(names: Sequence[str]) -> list[Item]:
    """Return the items of these names that there are."""
    honest = list(items.list_honest("cpu"))
    known = [*items.list_cheats("cpu"), *honest, *items.list_mutants("cpu", 2, honest)]
    wanted = set(names)
    return [one for one in known if one.name in wanted]


def score_sample(options: argparse.Namespace) -> int:
    """Judge the sample and print what has changed; return how many verdicts differ."""
    if options.choose_from is not None:
        names, stored = choose_sample(options.choose_from), None
    else:
        stored = read_sample()
        names = [row["item"] for row in stored["rows"]]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    judging.judge_items(find_items(names), "cpu", options.out, options.processes)
    newest = tables.select_newest(judging.read_rows(options.out))
    rows = [row for row in newest if row["item"] in set(names)]
    tables.print_score(rows)
    seconds = sum(row["seconds"] for row in rows)
    print(f"\n{len(rows)} of {len(names)} items, {seconds:.0f} s of judging over all processes")
    changed = 0 if stored is None else print_changes(stored, rows)
    if options.write:
        kept = [keep(row) for row in sorted(rows, key=lambda row: names.index(row["item"]))]
        lines = ",\n".join(json.dumps(row) for row in kept)
        head = json.dumps({"versions": read_versions(), "judged_s": round(seconds)}, indent=1)
        SAMPLE.write_text(head[:-2] + ',\n "rows": [\n' + lines + "\n]}\n")
        print(f"stored in {SAMPLE}")
    return changed


def keep(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of a row."""
    judged = row.get("judge") or {}
    return {
        "item": row["item"],
        "digest": row["digest"],
        "counted": bool(row.get("counted")),
        "caught": row.get("caught"),
        "status": judged.get("status") or row.get("fault"),
        "reason": judged.get("reason"),
    }


def print_changes(stored: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
    """Print versions and verdicts that differ from the stored ones; return how many verdicts do."""
    versions = read_versions()
    for part, now in versions.items():
        before = stored["versions"].get(part)
        if before != now:
            print(f"{part}: {_list_differences(before, now)}")
    new = {row["item"]: keep(row) for row in rows}
    changed = 0
    for before in stored["rows"]:
        now = new.get(before["item"])
        if now is None:
            print(f"gone: {before['item']}")
        elif (before["caught"], before["counted"]) != (now["caught"], now["counted"]):
            changed += 1
            print(f"changed: {before['item']}: {_tell(before)} -> {_tell(now)}")
        elif before["digest"] != now["digest"]:
            print(f"another text: {before['item']}")
    print(f"{changed} verdicts have changed since the stored score")
    return changed


def _tell(row: Mapping[str, Any]) -> str:
    word = "caught" if row["caught"] else "not caught" if row["counted"] else "not counted"
    return f"{word} ({row['status']}, {row['reason']})"


def _list_differences(before: Any, now: Any) -> str:
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return f"{before} -> {now}"
    names = sorted({*before, *now})
    return ", ".join(
        f"{name} {before.get(name)} -> {now.get(name)}"
        for name in names
        if before.get(name) != now.get(name)
    )


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cores = len(os.sched_getaffinity(0))

    sample = commands.add_parser("sample", help="judge the fixed sample of 200")
    sample.add_argument("--write", action="store_true", help="store the result")
    sample.add_argument("--out", type=Path, default=Path("build/judge-score-sample.jsonl"))
    sample.add_argument("--processes", type=int, default=min(2, cores))
    sample.add_argument("--choose-from", type=Path, help="results.jsonl: choose a new sample")

    judge = commands.add_parser("judge", help="judge the whole set")
    judge.add_argument("--out", type=Path, required=True, help="folder of results")
    judge.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    judge.add_argument(
        "--processes", type=int, default=max(1, cores // 2), help="they share all visible GPUs"
    )
    judge.add_argument("--most-each", type=int, default=2, help="mutants by kernel and operator")
    judge.add_argument("--mutants", type=int, default=10**6, help="mutants, at most")
    judge.add_argument("--honest", type=int, default=10**6, help="honest kernels, at most")
    judge.add_argument("--only", nargs="+", default=[], help="kinds of items")
    judge.add_argument("--limit-s", type=float, default=math.inf, help="begin none after this")
    judge.add_argument(
        "--precision", default="torch_default", help="of the judge; a folder for each"
    )
    judge.add_argument("--plain-check", type=Path, help="KernelBench, to run its own check beside")
    for name in corpora.KERNELS:
        judge.add_argument(f"--{name}", type=Path, help="folder of a checkout")

    report = commands.add_parser("report", help="print the tables of results")
    report.add_argument("folders", nargs="+", type=Path)

    detectors = commands.add_parser("detectors", help="score the detectors on labelled texts")
    for name in corpora.TEXTS:
        detectors.add_argument(f"--{name.replace('_', '-')}", type=Path, help="checkout")

    options = parser.parse_args()
    run: Mapping[str, Callable[[argparse.Namespace], int | None]] = {
        "sample": score_sample,
        "judge": judge_all,
        "report": lambda given: print_report([one / RESULTS for one in given.folders]),
        "detectors": search_all,
    }
    sys.exit(1 if run[options.command](options) else 0)


if __name__ == "__main__":
    main()
