"""The outcome of one round, and whether the policy has collapsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines import query
from store import read_sql
from store.errors import EvaluatorError, FlywheelError
from trainers.training.round_options import Config

if TYPE_CHECKING:
    import pyarrow as pa

    import store


class Collapsed(FlywheelError):
    """The policy no longer gives anything to learn from; earlier results are stored."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one round."""

    attempts: int
    with_code: int
    unique_kernels: int
    executable: int
    correct: int
    unique_correct: int
    unjudged: int = 0
    """Further attempts, whose kernels have no verdict because the judge failed."""

    @property
    def success_rate(self) -> float:
        """Return the share of attempts that are correct."""
        return self.correct / max(self.attempts, 1)

    @property
    def unique_share(self) -> float:
        """Return distinct kernels over attempts with code; 1 if there is no code."""
        return self.unique_kernels / self.with_code if self.with_code else 1.0

    def metrics(self) -> dict[str, float]:
        """Return the stored figures of a round."""
        return {
            "attempts": self.attempts,
            "unique_kernels": self.unique_kernels,
            "correct": self.correct,
            "unique_correct": self.unique_correct,
            "success_rate": self.success_rate,
            "executable_rate": self.executable / max(self.attempts, 1),
            "parse_rate": self.with_code / max(self.attempts, 1),
        }


def find_collapse(config: Config, outcome: Outcome, best: float) -> str | None:
    """Return why a round gives nothing to learn from, or None.

    Args:
        config: Bounds.
        outcome: The outcome of the round.
        best: Highest success rate of earlier rounds; 0 before the first.
    """
    if outcome.correct == 0:
        return f"none of {outcome.attempts} attempts is correct"
    if outcome.success_rate < config.least_success * best:
        return f"the success rate fell to {outcome.success_rate:.3g} from {best:.3g}"
    if outcome.unique_share < config.least_unique:
        return (
            f"{outcome.with_code} attempts gave {outcome.unique_kernels} distinct kernels, a share "
            f"of {outcome.unique_share:.3g}"
        )
    return None


def check_judged(outcome: Outcome) -> None:
    """Refuse a round that says little about the policy, because the judge failed.

    Raises:
        EvaluatorError: most attempts with code have no verdict.
    """
    if outcome.unjudged > outcome.with_code:
        total = outcome.unjudged + outcome.with_code
        raise EvaluatorError(
            f"{outcome.unjudged} of the round's {total} attempts with code have no verdict",
            "The judge failed. Once it works, run this again with --resume. Nothing is lost.",
        )


def read_outcome(lake: store.Lake, groups: Sequence[str]) -> Outcome:
    """Return the outcome of the attempts of these groups."""
    [row] = query(lake, read_sql(__file__, "round_outcome"), groups=_tabulate(groups)).to_pylist()
    return Outcome(**row)


def count_repeats(lake: store.Lake, groups: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return how often each kernel was written for each task: (task_id, kernel_id) to a number."""
    rows = query(lake, read_sql(__file__, "repeats"), groups=_tabulate(groups)).to_pylist()
    return {(row["task_id"], row["kernel_id"]): row["times"] for row in rows}


def _tabulate(groups: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table({"group_id": pa.array(groups, pa.string())})
