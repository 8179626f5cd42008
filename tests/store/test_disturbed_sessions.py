"""What speaks against a session: rows that say so, and rows of judges that only wrote noisy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store

TASK = b.task()
SIZES = b.workload(TASK)
H200 = b.device("H200", kind="cuda")
SHORT = "too short for the clock"
DISTURBED = "disturbed: eager differs from eager, or the device was slowed down"
UNCONFIRMED = "a surprising win that no second session confirmed"
STEADY, WIDE, APART = [1.0] * 20, [0.8] * 10 + [1.25] * 10, [1.08] * 20
"""Control ratios of a session."""

SPEEDUP_VIEWS = {
    "session_speedups": True,
    "speedups": True,
    "speedups_cuda_l1": True,
    "speedups_kernelbench": True,
    "pooled_speedups": False,
    "kernel_speedups": False,
    "rankable_sessions": False,
    "scored_speedups": False,
    "leading_speedups": False,
    "history": False,
    "best_kernels": False,
}
FIGURES = ("speedup", "speedup_low", "speedup_high", "baseline_ms")
"""Views with a speedup of kernels, to whether they have a row for each session."""


def measure(
    name: str,
    *,
    clock: str = "gpu",
    controls: list[float] | None = STEADY,
    flags: tuple[str, ...] = (),
    speedup: float = 2.0,
    minute: float = 0,
    short: bool = False,
    **columns: Any,
) -> tuple[b.Row, list[b.Row]]:
    """Return an evaluation, and a session of a kernel of its own over eager."""
    verdict = b.evaluation(b.kernel(name), TASK, SIZES, H200, flags=list(flags))
    rows = b.session(
        verdict, [1.0] * 20, clock=clock, minute=minute, eager=[1.0 if short else speedup] * 20
    )
    for row in rows:
        row |= {"control_ratios": controls if row["arm"] == "kernel" else None}
        row |= {"resolution_ms": 0.2 if short else 0.001} | columns
    return verdict, rows


def write_early(session: tuple[b.Row, list[b.Row]], *, noisy: bool) -> tuple[b.Row, list[b.Row]]:
    """Return a session as judges up to version 8 stored it."""
    left_out = ("confirmed", "disturbed", "unresolved")
    verdict, rows = session
    kept = [{k: v for k, v in row.items() if k not in left_out} for row in rows]
    return verdict, [row | {"noisy": noisy} for row in kept]


def early(name: str, *, noisy: bool = True, **about: Any) -> tuple[b.Row, list[b.Row]]:
    return write_early(measure(f"early {name}", **about), noisy=noisy)


GAPS = [*range(19), 40]
CASES: dict[str, tuple[tuple[b.Row, list[b.Row]], tuple[bool, bool, bool], str | None]] = {
    "quiet": (measure("quiet"), (False, False, False), None),
    "disturbed": (measure("disturbed", disturbed=True), (False, True, False), DISTURBED),
    "wide": (measure("wide", controls=WIDE, noisy=True), (False, False, False), None),
    "confirmed": (measure("confirmed", confirmed=True), (True, False, False), None),
    "short": (
        measure("short", short=True, unresolved=True, noisy=True), (False, False, True), SHORT
    ),
    "early quiet": (early("quiet", noisy=False), (False, False, False), None),
    "early apart": (early("apart", controls=APART), (False, True, False), DISTURBED),
    "early wide": (early("wide", controls=WIDE), (False, False, False), None),
    "early surprising": (
        early("surprising", controls=WIDE, speedup=4.0), (False, True, False), DISTURBED
    ),
    "early short": (early("short", short=True), (False, False, True), SHORT),
    "early gaps": (early("gaps", blocks=GAPS), (False, True, False), DISTURBED),
    "early without control": (early("alone", controls=None), (False, True, False), DISTURBED),
    "early unexplained": (early("unexplained"), (False, True, False), DISTURBED),
    "early unconfirmed": (
        early("unconfirmed", flags=("unconfirmed_win",)), (False, True, False), UNCONFIRMED
    ),
    "early shared": (
        early("shared", controls=WIDE, flags=("shares_device",)),
        (False, True, False),
        "another process of the kernel held the GPU",
    ),
}  # fmt: skip
"""Name to a session, what clocked_timings says of it, and why it ranks nothing."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with the sessions of CASES and of PAIR."""
    location = tmp_path_factory.mktemp("disturbed") / "lake"
    sessions = [session for session, _, _ in CASES.values()] + [*PAIR, *SEVERAL_CLOCKS]
    verdicts = {verdict["evaluation_id"]: verdict for verdict, _ in sessions}
    names = {kernel["kernel_id"]: kernel for kernel in map(b.kernel, NAMES)}
    with store.writer(str(location), author="tests") as writer:
        writer.append(
            {
                "tasks": [TASK],
                "workloads": [SIZES],
                "devices": [H200],
                "kernels": list(names.values()),
                "evaluations": list(verdicts.values()),
                "timings": [row for _, rows in sessions for row in rows],
            },
            "sessions",
        )
    return location


PAIR = [
    early("pair", flags=("confirmed_win",), speedup=4.0, minute=1, noisy=False),
    early("pair", flags=("confirmed_win",), speedup=4.2, minute=2),
]
"""Two sessions of a judge up to version 8 that confirm a win; the second is the higher one."""
SEVERAL_CLOCKS = [
    early("clocks", session_id="clocks", controls=WIDE),
    early("clocks", session_id="clocks", clock="latency"),
    early("other clocks", session_id="other clocks", controls=APART),
    early("other clocks", session_id="other clocks", clock="latency", controls=WIDE),
]
"""Sessions by a further clock, of judges that marked these as noisy where the main one is."""
NAMES = ["early pair", "early clocks", "early other clocks", *(
    name.replace("early without control", "early alone") for name in CASES
)]  # fmt: skip


def read(lake: Path, query: str) -> list[dict[str, Any]]:
    with store.open(str(lake)) as opened:
        return opened.sql(query).rows()


def test_rows_say_what_speaks_against_a_session_and_views_say_it_for_early_rows(
    lake: Path,
) -> None:
    rows = read(lake, "SELECT DISTINCT * FROM (SELECT kernel_id, confirmed, disturbed, arm, "
                "unresolved FROM clocked_timings)")  # fmt: skip
    found = {
        (row["kernel_id"], row["arm"]): tuple(
            row[name] for name in ("confirmed", "disturbed", "unresolved")
        )
        for row in rows
    }
    for name, ((verdict, _), columns, _) in CASES.items():
        for arm in ("kernel", "eager"):
            assert found[verdict["kernel_id"], arm] == columns, (name, arm)


@pytest.mark.slow
def test_a_disturbed_or_short_session_ranks_nothing_and_a_wide_one_ranks(lake: Path) -> None:
    ranked = {row["kernel_id"] for row in read(lake, "FROM scored_speedups WHERE clock = 'gpu'")}
    reasons = {
        row["kernel_id"]: row["reason"]
        for row in read(lake, "FROM unranked_sessions WHERE clock = 'gpu'")
    }
    for name, ((verdict, _), _, reason) in CASES.items():
        assert (verdict["kernel_id"] in ranked, reasons.get(verdict["kernel_id"])) == (
            reason is None, reason
        ), name  # fmt: skip
    [wide] = read(lake, f"FROM pooled_speedups WHERE kernel_id = '{b.kernel('wide')['kernel_id']}'")
    assert wide["speedup_low"] < wide["speedup"] == 2.0


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("view", SPEEDUP_VIEWS)
def test_no_view_has_a_speedup_over_a_baseline_that_is_too_short(lake: Path, view: str) -> None:
    short = ", ".join(f"'{b.kernel(name)['kernel_id']}'" for name in ("short", "early short"))
    rows = read(lake, f"FROM {view} WHERE kernel_id IN ({short})")
    assert len(rows) == (2 if SPEEDUP_VIEWS[view] else 0)
    for row in rows:
        assert {row.get(name) for name in FIGURES} == {None}
    others = read(lake, f"FROM {view} WHERE kernel_id NOT IN ({short})")
    assert any(row["speedup"] is not None for row in others)


@pytest.mark.slow
def test_of_two_early_sessions_that_confirm_a_win_both_are_confirmed_and_none_disturbed(
    lake: Path,
) -> None:
    pair = f"kernel_id = '{b.kernel('early pair')['kernel_id']}'"
    sessions = read(lake, f"FROM speedups WHERE {pair} ORDER BY measured_at")
    assert [(row["confirmed"], row["disturbed"]) for row in sessions] == [(True, False)] * 2
    [ranked] = read(lake, f"FROM rankable_sessions WHERE {pair}")
    assert ranked["speedup"] == 4.0
    [pooled] = read(lake, f"FROM pooled_speedups WHERE {pair}")
    assert pooled["sessions"] == 2
    assert pooled["speedup"] == pytest.approx(math.sqrt(4.0 * 4.2))


@pytest.mark.slow
def test_an_early_session_by_a_further_clock_is_disturbed_where_the_main_one_is(
    lake: Path,
) -> None:
    found = {
        name: {
            row["clock"]: row["disturbed"]
            for row in read(
                lake,
                "SELECT clock, disturbed FROM session_speedups WHERE kernel_id = "
                f"'{b.kernel(name)['kernel_id']}'",
            )
        }
        for name in ("early clocks", "early other clocks")
    }
    assert found == {
        "early clocks": {"gpu": False, "latency": False},
        "early other clocks": {"gpu": True, "latency": True},
    }
