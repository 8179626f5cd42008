"""Techniques that the parsers find in CUDA-L1's kernels, beside those that a reader labelled.

technique_labels.json has 80 of the release's 415 texts by kernel id. They are both texts of
level1/12, the H100 text of level2/83, the first two by id of each technique that extractor 2
found, and then the first by id of each level and GPU in turn. The reader saw the text without its
comments, and the reference, and read all of them twice. A label means:

algebraic_rewrite: other arithmetic than the reference's gives the same answer.
async_execution: work or copies are issued beside the stream that waits for them.
block_configuration: more than a fixed one-dimensional block and a grid that covers the elements.
caching: a call keeps what later calls use; no buffer that they overwrite.
fusion: one kernel, library call or folded layer does several operations of the reference.
memory_layout: inputs or weights are laid out anew; no guard that they are contiguous.
register_use: a thread keeps several values of an array or tile in registers.
short_circuit: the answer is known without the computation.

The others are what `store.code.completion` says of their syntax. Parsers were changed after a look
at one half, of ids that end in an even digit; the figures of the other half were taken afterwards.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from store import ids
from store.code.completion import ENTRY_PATH, TECHNIQUES
from store.code.features import extract

LABELS = {
    kernel_id: set(words.split())
    for kernel_id, words in json.loads(
        Path(__file__).with_name("technique_labels.json").read_text("utf-8")
    ).items()
}
FIGURES = {
    "algebraic_rewrite": [(9, 9, 12), (11, 11, 13)],
    "async_execution": [(4, 4, 4), (0, 1, 0)],
    "block_configuration": [(11, 11, 11), (12, 12, 12)],
    "caching": [(1, 1, 2), (1, 1, 7)],
    "coalesced_access": [(4, 4, 4), (5, 5, 5)],
    "cuda_graphs": [(10, 10, 10), (1, 1, 1)],
    "cudnn_flags": [(15, 15, 15), (5, 5, 5)],
    "fusion": [(10, 10, 11), (13, 13, 17)],
    "in_place": [(17, 17, 18), (8, 9, 11)],
    "memory_layout": [(15, 15, 16), (9, 9, 12)],
    "reduced_precision": [(8, 8, 8), (6, 6, 6)],
    "register_use": [(2, 2, 2), (1, 1, 3)],
    "shared_memory": [(4, 4, 4), (11, 11, 11)],
    "short_circuit": [(1, 1, 1), (2, 2, 2)],
    "tensor_cores": [(0, 0, 0), (0, 0, 0)],
    "torch_compile": [(2, 2, 2), (2, 2, 2)],
    "torch_jit": [(6, 6, 6), (4, 4, 4)],
    "unrolling": [(5, 5, 6), (7, 7, 8)],
    "warp_reduction": [(2, 2, 2), (3, 3, 3)],
}
"""Of each half: kernels with the label that have the technique, with the technique, with the label.

Precision is the first by the second, and recall the first by the third.
"""


def test_labels_are_of_the_vocabulary() -> None:
    assert len(LABELS) == 80
    assert set().union(*LABELS.values()) | {"tensor_cores"} == set(TECHNIQUES)


def test_precision_and_recall_of_each_technique() -> None:
    texts = {ids.kernel_id({ENTRY_PATH: code}, ENTRY_PATH): code for code in read_release()}
    assert len(texts) == 415
    figures: dict[str, list[tuple[int, int, int]]] = {name: [] for name in TECHNIQUES}
    for parity in (0, 1):
        half = [kernel_id for kernel_id in LABELS if int(kernel_id[-1], 16) % 2 == parity]
        both, found, labelled = Counter[str](), Counter[str](), Counter[str]()
        for kernel_id in half:
            techniques = set(extract(texts[kernel_id])[0]["techniques"])
            both.update(techniques & LABELS[kernel_id])
            found.update(techniques)
            labelled.update(LABELS[kernel_id])
        for name in TECHNIQUES:
            figures[name].append((both[name], found[name], labelled[name]))
    assert figures == FIGURES


def read_release() -> set[str]:
    """Return the texts of the release's kernels."""
    named = os.environ.get("FLYWHEEL_CUDA_L1")
    root = Path(__file__).parents[2]
    folder = Path(named) if named else root.parent / "shared" / "data" / "cuda-l1"
    if not folder.is_dir():
        pytest.skip("the CUDA-L1 release is not on disk; name its folder in FLYWHEEL_CUDA_L1")
    files = sorted(folder.glob("optimized_cuda_code/*.json")) or sorted(folder.glob("*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return {row["custom_code"] for row in rows if row["custom_code"] not in (None, "", "None")}
