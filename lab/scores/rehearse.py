"""A rehearsal on a processor: a fitted surface and a tiny model. Its figures count for nothing.

    python -m lab.scores.rehearse surface OUT     # OUT/lakes, with rows of the evaluator rehearsal
    python -m lab.scores.rehearse model OUT       # OUT/model, a random Llama below 1M parameters

The surface is fitted to what the runs in docs/runs have measured on H100s, which is a part of the
settings at some shapes. A ridge regression of the logarithm of the speedup on the values of the
knobs, their pairs, and both by shape gives every setting of every task of the grid a speedup. So
the rows are no measurements: their evaluator is `rehearsal`, and no view ranks them.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.scores.budget import say
from lab.scores.grid import SPLITS, list_kernels, make_bundle
from lab.scores.tasks import KNOBS, name_setting
from store import ids
from store.generated.writing.texts import Draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

EVALUATOR = "rehearsal"
RUNS = ("turner-4", "model-3", "history-1")
_NOISE = 0.03
"""Standard deviation of the logarithm of a speedup between operations."""
_PENALTIES = {"shape": 0.02, "setting": 0.1, "setting at shape": 0.5, "task": 0.5}
_BLOCKS = 8
_EAGER_MS = 1.0
_VOCABULARY = 1500
_APART = "|".join(
    [
        r"(?<=[A-Z] = )\d+",  # values of knobs
        r"(?<=[a-zL] )\d(?=\n|:)",  # numbers of kernels
        r"\d(?=[\d.]*x as)|\.(?=\d\dx as)",  # digits of scores
    ]
)
_OPERATION = r"(?<=: )[^\n]*(?=, sum\.)|(?<=\n)( *v = )(?!v\.sum|tl\.load)[^\n]*"


@dataclass(frozen=True)
class Measured:
    """One measured setting of one task."""

    shape: str
    task_id: str
    setting: str
    log_speedup: float


def read_measured(root: Path) -> dict[str, list[Measured]]:
    """Return what the runs in docs/runs measured on H100s at settings of the grid, by family."""
    import store
    from lab.merge import merge

    rows: dict[str, list[Measured]] = {family: [] for family in KNOBS}
    query = store.read_statement(Path(__file__).parent / "queries/measured.sql")
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS:
            merge(f"{folder}/lake", root / "docs/runs" / run / "tables", "H100")
        with store.open(f"{folder}/lake") as lake:
            for row in lake.run(query).rows():
                knobs = KNOBS[row["family"]]
                values = dict(part.split("=") for part in row["setting"].split())
                if set(values) == set(knobs) and all(
                    int(values[name]) in knobs[name] for name in knobs
                ):
                    row_of = Measured(
                        row["shape"], row["task_id"], row["setting"], row["log_speedup"]
                    )
                    rows[row["family"]].append(row_of)
    return rows


def fit_surface(measured: Sequence[Measured]) -> tuple[dict[str, float], float]:
    """Return weights of a ridge regression by feature, and the share of variance it explains."""
    features = [_name_features(one.shape, one.setting, one.task_id) for one in measured]
    names = sorted({name for row in features for name in row})
    place = {name: index for index, name in enumerate(names)}
    x: NDArray[np.float64] = np.zeros((len(measured), len(names)))
    for row, found in enumerate(features):
        for name in found:
            x[row, place[name]] = 1.0
    y = np.array([one.log_speedup for one in measured])
    penalty = np.diag([_PENALTIES[name.partition(":")[0]] for name in names])
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    rest = y - x @ weights
    return dict(zip(names, weights.tolist(), strict=True)), float(1 - rest.var() / y.var())


def predict(weights: dict[str, float], shape: str, setting: str) -> float:
    """Return the fitted logarithm of the speedup of a setting at a shape."""
    return sum(weights.get(name, 0.0) for name in _name_features(shape, setting))


def _name_features(shape: str, setting: str, task_id: str | None = None) -> list[str]:
    values = setting.split()
    parts = [*values, *(f"{one} {other}" for one, other in combinations(values, 2))]
    return [
        f"shape:{shape}",
        *(f"setting:{part}" for part in parts),
        *(f"setting at shape:{shape} {part}" for part in parts),
        *([f"task:{task_id}"] if task_id is not None else []),
    ]


def write_lakes(out: Path, root: Path) -> None:
    """Write the lakes of the grid with fitted speedups."""
    import store

    surfaces: dict[str, dict[str, float]] = {}
    for family, measured in read_measured(root).items():
        surfaces[family], explained = fit_surface(measured)
        say(f"{family}: {len(measured)} settings measured, R² {explained:.3f}")
    now = datetime.now(UTC)
    device = {
        "device_id": ids.content_id("device", EVALUATOR),
        "name": EVALUATOR,
        "kind": "cuda",
        "model": EVALUATOR,
        "created_at": now,
    }
    run = {
        "run_id": ids.content_id("run", EVALUATOR),
        "kind": "evaluation",
        "name": EVALUATOR,
        "config": "{}",
        "started_at": now,
    }
    for split in SPLITS:
        shutil.rmtree(out / "lakes" / split, ignore_errors=True)
        tables: dict[str, list[dict[str, Any]]] = {"evaluations": [], "timings": []}
        for kernel in list_kernels((split,)):
            task = kernel.task
            setting = name_setting(kernel.setting)
            draw = Draw(EVALUATOR, task.task_id, setting)
            noise = math.sqrt(12) * _NOISE * (draw.integer_below(10_001) / 10_000 - 0.5)
            log_speedup = predict(surfaces[task.family], task.shape, setting) + noise
            shared = {
                "evaluation_id": ids.content_id("evaluation", EVALUATOR, kernel.place),
                "kernel_id": kernel.kernel_id,
                "task_id": task.task_id,
                "workload_id": ids.workload_id(task.task_id, task.axes),
                "device_id": device["device_id"],
                "created_at": now,
            }
            tables["evaluations"].append(
                shared
                | {
                    "run_id": run["run_id"],
                    "evaluator": EVALUATOR,
                    "evaluator_version": 1,
                    "status": "correct",
                    "protocol": "training",
                }
            )
            session = ids.content_id("session", EVALUATOR, kernel.place)
            for arm, ms in (("kernel", _EAGER_MS / math.exp(log_speedup)), ("eager", _EAGER_MS)):
                tables["timings"].append(
                    shared
                    | {
                        "timing_id": ids.content_id("timing", session, arm),
                        "session_id": session,
                        "arm": arm,
                        "samples_ms": [ms] * _BLOCKS,
                        "blocks": list(range(_BLOCKS)),
                        "inner_loops": 1,
                        "clock": "gpu",
                        "cache": "cold",
                        "noisy": False,
                        "confirmed": False,
                        "disturbed": False,
                        "unresolved": False,
                    }
                )
        with store.writer(str(out / "lakes" / split), author="lab rehearsal") as writer:
            writer.append_all([make_bundle(split, list_kernels((split,)))])
            rows = {"devices": [device], "runs": [run], **tables}
            writer.append(rows, message="the fitted surface")
        # The pipeline takes no kernel that no detector has read, and here no judge has read them.
        audit = ("-m", "evaluators", "audit", "--quiet", "--lake", str(out / "lakes" / split))
        subprocess.run([sys.executable, *audit], check=True, cwd=root)
        say(f"{split}: {len(tables['evaluations'])} kernels → {out / 'lakes' / split}")


def write_model(folder: Path, texts: Sequence[str], seed: int = 0) -> int:
    """Write a random Llama with a tokenizer of its own; return its number of parameters.

    Its tokenizer keeps apart what differs between prompts. Other tokens are whole passages of code,
    so that a prompt has about 50 tokens, and a processor is enough. All operations read alike,
    because a model that begins with random weights knows nothing about those that it has not seen.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    made: Any = Tokenizer(models.BPE())
    made.normalizer = normalizers.Replace(Regex(_OPERATION), "operation")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_APART), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|pad|>"]
    trainer: Any = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=special[0],
        eos_token=special[1],
        pad_token=special[2],
        model_max_length=4096,
    )
    tokenizer.chat_template = (
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
        "{{ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    marks: dict[str, Any] = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        **marks,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    model.save_pretrained(str(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def main() -> None:
    """Write the surface, or the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("surface", "model"))
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.step == "surface":
        write_lakes(given.out, Path(__file__).parents[2])
        return
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = (
        pq.read_table(given.out / "rows.parquet").slice(0, 2000).to_pylist()
    )
    texts = [
        turn["content"] for row in rows for name in ("prompt", "completion") for turn in row[name]
    ]
    count = write_model(given.out / "model", texts)
    say(f"{count} parameters → {given.out / 'model'}")


if __name__ == "__main__":
    main()
