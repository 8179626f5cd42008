"""Rollouts with token ids for off-policy training, in the columns that TRL reads.

`SFTTrainer` reads input_ids and labels, which are -100 where a token is not in the loss. A
`rollout_func` of `GRPOTrainer` returns prompt_ids, completion_ids, logprobs and env_mask. prompt
and completion are the messages. `load_dataset(FOLDER)` opens the folder. Leaves out rollouts of
test tasks, and rollouts that have or show a kernel that no dataset may contain.
"""

from __future__ import annotations

from pathlib import Path

from store.exporters.writing.run import OfRun, write_rollouts
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

Config = OfRun


def write(lake: Lake, folder: Path, config: OfRun) -> dict[str, int]:
    """Write train.parquet, one row for each rollout."""
    return write_rollouts(lake, folder, config, read_sql(__file__, "trl"))
