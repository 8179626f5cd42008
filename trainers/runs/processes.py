"""Several processes of one training run, of which only rank 0 reads and writes the lake."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from store.errors import FlywheelError

_Made = TypeVar("_Made")

WAIT = timedelta(hours=6)
"""How long other ranks wait for rank 0, which may be sampling and judging meanwhile."""


def count_processes() -> int:
    """Return the number of processes that torchrun or accelerate started; 1 without them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def read_rank() -> int:
    """Return the number of this process among all of the run."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this process is the one that writes to the lake."""
    return read_rank() == 0


def run_on_main(make: Callable[[], _Made], meanwhile: Callable[[], None] | None = None) -> _Made:
    """Return the result of rank 0 on every rank; an error there is raised on every rank.

    The result must be picklable: paths, texts, numbers. It travels between processes of one run.
    Other ranks call `meanwhile`, which must return when `make` does, or before.
    """
    if count_processes() == 1:
        return make()
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    # Join the process group, with a limit that lets rank 0 sample and judge.
    PartialState(cpu=not torch.cuda.is_available(), timeout=WAIT)
    box: list[Any] = [None, None]
    if is_main():
        try:
            box[0] = make()
        except FlywheelError as error:
            box[1] = error
        except BaseException:
            box[1] = FlywheelError("rank 0 failed", "Its own message stands above.")
            broadcast_object_list(box)
            raise
    elif meanwhile is not None:
        meanwhile()
    broadcast_object_list(box)
    if box[1] is not None:
        raise box[1]
    return box[0]
