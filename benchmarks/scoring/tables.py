"""Tables of a score, in Markdown."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
_Z = 1.959964
PLAIN_VERDICTS = ("right", "wrong", "cannot run")
"""Of KernelBench's own check: a kernel that it can neither build nor call is not wrong."""
CLAIMED = {"level_1": 1.58, "level_2": 1.81, "level_3": 1.51}
"""Geometric means that METR has published for its best solutions, by level."""


def bound_share(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    >>> [round(bound, 3) for bound in bound_share(9, 10)]
    [0.596, 0.982]
    """
    if not total:
        return 0.0, 1.0
    share, square = count / total, _Z * _Z / total
    middle = share + square / 2
    spread = _Z * math.sqrt(share * (1 - share) / total + square / total / 4)
    low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
    return max(low, 0.0), min(high, 1.0)


def write_share(count: int, total: int) -> str:
    """Return a share with its interval.

    >>> write_share(9, 10)
    '9 of 10, 90.0 % (59.6 to 98.2)'
    """
    if not total:
        return "none"
    low, high = (100 * bound for bound in bound_share(count, total))
    return f"{count} of {total}, {100 * count / total:.1f} % ({low:.1f} to {high:.1f})"


def select_newest(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of each item."""
    return list({row["item"]: row for row in rows}.values())


def is_own(row: Row) -> bool:
    """Whether a mutant differs from its original at the task's own shape."""
    return any(found["own"] for found in row["probe"]["differs"])


def print_score(rows: Sequence[Row]) -> None:
    """Print recall and false alarms by corpus, family and language, and every miss."""
    faults = [row for row in rows if "fault" in row]
    rows = [row for row in rows if "fault" not in row]
    mutants = [row for row in rows if row["kind"] == "mutant"]
    counted = [row for row in mutants if row["counted"]]
    own = [row for row in counted if is_own(row)]
    elsewhere = [row for row in counted if not is_own(row)]
    cheats = [row for row in rows if row["kind"] == "cheat"]
    honest = [row for row in rows if row["kind"] == "honest"]
    print(f"{len(mutants)} mutants: {len(counted)} count; {len(faults)} faults")
    whys = Counter(_shorten(row["probe"]["why"]) for row in mutants if not row["counted"])
    print("not counted: " + ", ".join(f"{count} {why}" for why, count in whys.most_common()))
    print("\n| kernels | caught by the judge | refused by 5 trials with 1e-2 in one process |")
    print("|---|---|---|")
    groups = {
        "mutants, wrong at their own shape": own,
        "mutants, wrong at another shape alone": elsewhere,
        "cheats": cheats,
        "honest kernels (false alarms)": honest,
    }
    for name, group in groups.items():
        print(f"| {name} | {_count_caught(group)} | {_count_rule(group)} |")
    _print_groups("mutants by operator, at their own shape", own, lambda row: row["family"])
    _print_groups("mutants by language", own, lambda row: row["language"])
    _print_groups("mutants by corpus", counted, lambda row: row["corpus"])
    _print_groups("cheats by kind", cheats, lambda row: row["family"])
    _print_groups("honest kernels by origin", honest, lambda row: row["family"])
    _print_groups("honest kernels by language", honest, lambda row: row["language"])
    for name, group, wanted in (
        ("missed mutant", counted, False),
        ("missed cheat", cheats, False),
        ("refused honest kernel", honest, True),
    ):
        for row in group:
            if row["caught"] is wanted:
                print(f"{name}: {describe(row)}")
    for row in faults:
        print(f"fault: {row['item']}: {row['fault']}")


def describe(row: Row) -> str:
    """Return an item, its mistake, and what the judge says of it."""
    judged = row["judge"]
    parts = [row["item"], row["family"], row["change"]]
    differs = row["probe"]["differs"]
    if differs:
        parts.append(f"wrong at {differs[0]['shape'] or 'its own shape'}")
    parts += [judged["status"], judged["reason"], " ".join(judged.get("flags", ()))]
    parts.append(judged.get("message"))
    return "; ".join(str(part) for part in parts if part)


def _shorten(why: str | None) -> str:
    return (why or "").partition(":")[0]


def _count_caught(rows: Sequence[Row]) -> str:
    return write_share(sum(bool(row["caught"]) for row in rows), len(rows))


def _count_rule(rows: Sequence[Row]) -> str:
    """Count refusals; a process that ends, hangs or raises has not passed."""
    known = [row for row in rows if row["probe"]["rule"] is not None or row["probe"]["why"]]
    return write_share(sum(row["probe"]["rule"] != 1.0 for row in known), len(known))


def _print_groups(title: str, rows: Sequence[Row], key: Callable[[Row], str]) -> None:
    if not rows:
        return
    print(f"\n| {title} | caught by the judge | refused by the rule |")
    print("|---|---|---|")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for name, group in sorted(groups.items()):
        print(f"| {name} | {_count_caught(group)} | {_count_rule(group)} |")


def print_public(rows: Sequence[Row]) -> None:
    """Print what the judge says of published kernels without a label, and their speedups."""
    rows = [row for row in rows if row["kind"] == "public" and "fault" not in row]
    if not rows:
        return
    print(
        "\n| level | kernels | correct | equivalent | others, by reason | pass the rule in one "
        "process | KernelBench's own check: right | wrong | cannot run |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["family"], []).append(row)
    for level, group in sorted(groups.items()):
        right = [row for row in group if row["judge"]["status"] == "correct"]
        equivalent = [row for row in right if row["judge"]["equivalent"] is not False]
        reasons = Counter(
            row["judge"]["reason"] or row["judge"]["status"] for row in group if row not in right
        )
        text = ", ".join(f"{count} {name}" for name, count in reasons.most_common())
        passed = sum(row["probe"]["rule"] == 1.0 for row in group)
        plain = Counter(row["kernelbench"]["says"] for row in group if "kernelbench" in row)
        counts = [str(plain[says]) if plain else "not asked" for says in PLAIN_VERDICTS]
        print(
            f"| {level} | {len(group)} | {len(right)} | {len(equivalent)} | {text} "
            f"| {passed} | {' | '.join(counts)} |"
        )
    print("\n| level | claimed, geometric mean | measured, of the correct | n | median |")
    print("|---|---|---|---|---|")
    for level, group in sorted(groups.items()):
        speedups = [
            row["judge"]["speedup"]
            for row in group
            if row["judge"]["status"] == "correct" and row["judge"].get("speedup")
        ]
        if speedups:
            print(
                f"| {level} | {CLAIMED.get(level, 'none')} "
                f"| {statistics.geometric_mean(speedups):.2f} | {len(speedups)} "
                f"| {statistics.median(speedups):.2f} |"
            )
    for row in rows:
        if row["judge"]["status"] != "correct" or row["judge"]["equivalent"] is False:
            print(f"published: {describe(row)}; rule {row['probe']['rule']}")
    for row in rows:
        plain = row.get("kernelbench", {"says": "right"})
        if plain["says"] != "right":
            print(f"KernelBench's own check: {row['item']}: {plain['says']}: {plain['why']}")
