"""Families follow the weightiest operation; splits follow families and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from store.code.task_families import choose_test, classify_family, split_rows

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, {arguments}):
        return {result}
"""


@pytest.mark.parametrize(
    ("layers", "arguments", "result", "expected"),
    [
        ("pass", "a, b", "torch.matmul(a, b)", "matmul"),
        ("pass", "a, b", "a @ b", "matmul"),
        ("pass", "a, b", "torch.tril(torch.matmul(a, b))", "matmul"),
        ("self.c = nn.Conv2d(3, 4, 3)", "x", "self.c(x)", "conv2d"),
        ("self.c = nn.ConvTranspose3d(3, 4, 3)", "x", "self.c(x)", "conv_transpose3d"),
        ("self.c = nn.Conv2d(3, 4, 3)", "x", "torch.relu(self.c(x)) * 2", "conv2d_elementwise"),
        (
            "self.c = nn.Conv3d(3, 4, 3); self.n = nn.GroupNorm(2, 4)",
            "x",
            "torch.clamp(self.n(self.c(x)), 0)",
            "conv3d_norm",
        ),
        (
            "self.l = nn.Linear(3, 4)",
            "x",
            "torch.softmax(F.gelu(self.l(x)), dim=1)",
            "matmul_softmax",
        ),
        ("self.r = nn.LSTM(3, 4)", "x", "self.r(x)", "rnn"),
        ("pass", "q, k, v", "F.scaled_dot_product_attention(q, k, v)", "attention"),
        ("self.s = nn.Sequential(nn.Linear(3, 4), nn.ReLU())", "x", "self.s(x)", "network"),
        ("pass", "x", "torch.cumsum(x, dim=1)", "scan"),
        ("pass", "x", "torch.softmax(x, dim=1)", "softmax"),
        ("pass", "x, target", "F.cross_entropy(x, target)", "loss"),
        ("pass", "predictions, targets", "torch.mean((predictions - targets) ** 2)", "loss"),
        ("self.n = nn.LayerNorm(3)", "x", "self.n(x)", "norm"),
        ("pass", "x", "x / torch.sqrt(torch.mean(x ** 2, dim=1))", "norm"),
        ("pass", "x", "F.max_pool2d(x, 2)", "pooling"),
        ("pass", "x", "torch.sum(x, dim=1)", "reduction"),
        ("pass", "x", "x / (1 + torch.abs(x))", "elementwise"),
    ],
)
def test_family_of_a_task(layers: str, arguments: str, result: str, expected: str) -> None:
    code = TASK.format(layers=layers, arguments=arguments, result=result)
    assert classify_family(code) == expected


@pytest.mark.parametrize("code", ["", "def broken(:", "\0", "class Other:\n    pass\n"])
def test_what_is_no_task_is_other(code: str) -> None:
    assert classify_family(code) == "other"


def test_comments_do_not_name_a_family() -> None:
    code = TASK.format(layers="pass  # nn.LSTM(3, 4)", arguments="x", result="torch.relu(x)")
    assert classify_family(code) == "elementwise"


def make_levels() -> tuple[list[str], list[int]]:
    numbers = [i % 23 for i in range(400)]
    return [f"f{number}" for number in numbers], [1 + number % 3 for number in numbers]


def test_a_split_is_stratified_by_level_and_repeatable() -> None:
    families, levels = make_levels()
    test = choose_test("suite", families, levels)
    assert test == choose_test("suite", families[::-1], levels[::-1])
    assert test != choose_test("another", families, levels)
    held = Counter(level for name, level in zip(families, levels, strict=True) if name in test)
    for level, count in Counter(levels).items():
        assert 0 < held[level] <= 0.2 * count


def test_a_level_alone_is_split_as_among_the_others() -> None:
    families, levels = make_levels()
    alone = [name for name, level in zip(families, levels, strict=True) if level == 2]
    whole = choose_test("suite", families, levels) & set(alone)
    assert choose_test("suite", alone, [2] * len(alone)) == whole


def sides(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["family"]: row["split"] for row in rows}


def test_two_families_give_both_sides_and_one_gives_train() -> None:
    assert sides(split_rows("s", ["a", "b", "b"])) == {"a": "test", "b": "train"}
    assert sides(split_rows("s", ["a"])) == {"a": "train"}
    assert split_rows("s", []) == []


def test_kernelbench_is_split_alike_whatever_is_there() -> None:
    part = sides(split_rows("kernelbench", ["rnn"]))
    more = sides(split_rows("kernelbench", ["rnn", "network", "a_family_of_later"]))
    assert part == {"rnn": "test"}
    assert more == {"rnn": "test", "network": "train", "a_family_of_later": "train"}
