"""A baseline is declared once, in catalog.yaml, and all rooms derive from that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluators.worker.baselines import BASELINES
from store.schema.baselines import list_baselines

ROOT = Path(__file__).parents[1]
NEW = "compile_max_autotune"
DECLARED = f"""baselines:
  {NEW}: {{words: torch.compile with autotuning, about: "torch.compile with mode=max-autotune."}}"""
READ = f"""
import json, sys
import store
from evaluators.judging.bench import explain_unimplemented
from store.cli import reference
from store.schema import catalog
from store.schema.baselines import describe_baseline
from trainers.rewarding import scoring
from trainers.rewards import milestone

with store.writer("lake", author="tests"):
    pass
with store.open("lake") as lake:
    config = milestone.Config(baseline="{NEW}", second_baseline="{NEW}")
    rule = scoring.load_rule("milestone")
    rewards = scoring.score_step(lake, rule, config, "run", 0, [], [])
known = catalog.load()
print(json.dumps({{
    "baseline": known.enums["baseline"].values,
    "arm": known.enums["arm"].values,
    "words": describe_baseline("{NEW}"),
    "page": reference.render_tables_page(known),
    "rewards": rewards.raw,
    "unimplemented": explain_unimplemented(["eager", "{NEW}"]),
}}))
"""
HELP = (
    ("evaluators.cli.app", "run", "--help"),
    ("pipelines.cli.app", "run", "contrastive-batch", "--help"),
    ("pipelines.cli.app", "run", "preference-pairs", "--help"),
    ("trainers.cli.app", "run", "contrastive", "--help"),
    ("store.cli.app", "import", "kernelbench-run", "--help"),
)


@pytest.fixture
def overlay(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose catalog has one more baseline; lakes are made in its folder."""
    text = (ROOT / "catalog.yaml").read_text("utf-8")
    file = tmp_path / "catalog.yaml"
    file.write_text(text.replace("baselines:", DECLARED, 1), "utf-8")
    return {**os.environ, "FLYWHEEL_CATALOG": str(file), "PYTHONPATH": str(ROOT)}


def read(overlay: dict[str, str], *arguments: str) -> str:
    """Return what a Python process says under the catalog."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**overlay, "COLUMNS": "300"},
        cwd=Path(overlay["FLYWHEEL_CATALOG"]).parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
def test_a_new_baseline_is_in_enums_prompts_rewards_and_docs(overlay: dict[str, str]) -> None:
    found: dict[str, Any] = json.loads(read(overlay, "-c", READ).splitlines()[-1])
    assert found["baseline"] == [NEW, *list_baselines()]
    assert found["arm"] == ["kernel", NEW, *list_baselines()]
    assert found["words"] == "torch.compile with autotuning"
    assert f"| {NEW} | torch.compile with autotuning | torch.compile with mode" in found["page"]
    assert found["rewards"] == []
    assert found["unimplemented"].keys() == {NEW}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_a_new_baseline_is_a_choice_of_every_option(
    overlay: dict[str, str], command: tuple[str, ...]
) -> None:
    module, *arguments = command
    start = f"import sys; sys.argv = ['x', *sys.argv[1:]]; from {module} import main; main()"
    text = re.sub(r"\s+", "", read(overlay, "-c", start, *arguments))
    assert NEW in text


def test_every_baseline_is_implemented() -> None:
    assert tuple(BASELINES) == list_baselines()
