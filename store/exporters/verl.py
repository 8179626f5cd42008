"""Rollouts with token ids for off-policy training, in the columns that verl reads.

`RLHFDataset` reads data_source, prompt, reward_model and extra_info, and hands the others to the
agent loop: prompt_ids, response_ids, response_mask, response_logprobs, reward_score and num_turns
are fields of its `AgentLoopOutput`. Leaves out rollouts of test tasks, rollouts that have or show a
kernel that no dataset may contain, and rollouts whose prompt is stored without its text.
"""

from __future__ import annotations

from pathlib import Path

from store.exporters.writing.run import OfRun, write_rollouts
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

Config = OfRun


def write(lake: Lake, folder: Path, config: OfRun) -> dict[str, int]:
    """Write train.parquet, one row for each rollout."""
    return write_rollouts(lake, folder, config, read_sql(__file__, "verl"))
