"""One policy sampled by all ranks of a training run: rank 0 asks, each rank answers its share.

rank 0: rollout ─▶ Spread.sample ─▶ request ─┬─▶ own share ──┬─▶ answers in order ─▶ rows
rank k:            serve ◀──────────────────┴─▶ their share ┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines import Message
from store.errors import FlywheelError
from trainers.policies.interface import Completion, Sampling, Serving
from trainers.policies.local_model import Local
from trainers.runs import processes


class Spread:
    """The policy on rank 0; the other ranks run `serve` until the context ends."""

    def __init__(self, folder: Path, serving: Serving) -> None:
        self._local = Local(str(folder), serving)
        self._each = max(serving.batch, 1)

    def __enter__(self) -> Spread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if processes.count_processes() > 1:
            _broadcast(None)

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`."""
        return self._local.row

    def sample(
        self,
        prompts: Sequence[list[Message]],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield each prompt's n completions, a batch of every rank at a time.

        Raises:
            FlywheelError: a rank could not sample its share.
        """
        if processes.count_processes() == 1:
            yield from self._local.sample(prompts, n, sampling, seeds)
            return
        size = max(self._each // n, 1) * processes.count_processes()
        for place, start in enumerate(range(0, len(prompts), size)):
            end = start + size
            moved = None if seeds is None else [_move(one, place) for one in seeds[start:end]]
            request = (prompts[start:end], n, _move_seed(sampling, place), moved)
            _broadcast(request)
            for index, made in _answer_share(self._local, *request):
                yield start + index, made

    def close(self) -> None:
        """Release the model; later sampling loads it again."""
        self._local.close()


def serve(folder: Path, serving: Serving) -> None:
    """Answer requests of rank 0 until it stops."""
    local = Local(str(folder), serving)
    while (request := _broadcast(None)) is not None:
        _answer_share(local, *request)
    local.close()


def _answer_share(
    local: Local,
    prompts: Sequence[list[Message]],
    n: int,
    sampling: Sampling,
    seeds: Sequence[int] | None,
) -> list[tuple[int, list[Completion]]]:
    """Sample this rank's share of the prompts, and return those of all ranks."""
    from accelerate.utils import gather_object

    rank, ranks = processes.read_rank(), processes.count_processes()
    mine = list(range(rank, len(prompts), ranks))
    try:
        moved = None if seeds is None else [_move(seeds[index], rank) for index in mine]
        texts = [prompts[index] for index in mine]
        sampled = local.sample(texts, n, _move_seed(sampling, rank), moved)
        answers: list[Any] = [(mine[index], made) for index, made in sampled] if mine else []
    except Exception as error:
        answers = [FlywheelError(f"rank {rank} could not sample: {error}")]
    found: list[Any] = gather_object(answers)
    for one in found:
        if isinstance(one, FlywheelError):
            raise one
    return found


def _move_seed(sampling: Sampling, by: int) -> Sampling:
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=_move(sampling.seed, by))


def _move(seed: int, by: int) -> int:
    """Return a seed that differs by rank and batch, so that no two draw the same."""
    return (seed * 1_000_003 + by) % (1 << 31)


def _broadcast(request: Any) -> Any:
    from accelerate.utils import broadcast_object_list

    box = [request]
    broadcast_object_list(box)
    return box[0]
