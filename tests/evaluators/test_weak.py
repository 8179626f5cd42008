"""Which answers without work pass a task."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.judging.weak_tasks import audit_task


def task_of(forward: str, init: str = "", inputs: str = "torch.randn(16, 8)") -> str:
    """Return the text of a task."""
    return (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        {init or 'pass'}\n\n"
        f"    def forward(self, x, *others):\n        {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )


LINEAR = "self.one = torch.nn.Linear(8, 8)"
TASKS = {
    "a layer": (task_of("return self.one(x)", LINEAR), []),
    "tiny answers": (task_of("return x * 1e-12"), []),
    "an index": (task_of("return x.argmax(1)"), []),
    "two outputs": (task_of("return x.sum(1), [x.max()]"), []),
    "named outputs": (task_of("return {'sum': x.sum(1), 'parts': (x + 1,)}"), []),
    "a named zero": (task_of("return {'zero': x - x}"), ["mean", "other_inputs", "zeros"]),
    "a named tuple": (task_of("return x.max(1)"), []),
    "batch statistics": (task_of("return self.norm(x)", "self.norm = torch.nn.BatchNorm1d(8)"), []),
    "complex": (task_of("return torch.fft.fft(x)"), []),
    "nothing left": (task_of("return x - x"), ["mean", "other_inputs", "zeros"]),
    "nothing left of a layer": (
        task_of("y = self.one(x); return y - y.mean(1, keepdim=True) * 0 - y", LINEAR),
        ["mean", "other_inputs", "other_parameters", "zeros"],
    ),
    "ones": (task_of("return torch.ones_like(x)"), ["mean", "ones", "other_inputs"]),
    "the input": (task_of("return x.clone()"), ["input_0"]),
    "the second input": (
        task_of("return others[0].view(8, 16)", inputs="torch.randn(4), torch.randn(16, 8)"),
        ["input_1"],
    ),
    "a constant per row": (
        task_of("return torch.softmax(x, 1).sum(1)"), ["mean", "ones", "other_inputs"]
    ),
    "weights alone": (task_of("return self.one.weight * 1", LINEAR), ["other_inputs"]),
    "weights without effect": (
        task_of("return x.exp() + 0 * self.one(x)", LINEAR), ["other_parameters"]
    ),
    "always false": (task_of("return x > 99"), ["mean", "other_inputs", "zeros"]),
}  # fmt: skip


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("name", TASKS)
def test_what_passes_a_task_without_work_is_named(name: str, references: Any) -> None:
    text, passes = TASKS[name]
    reference = references(text)
    assert audit_task(reference) == passes
    assert reference.repeatable


def test_tasks_that_remember_or_draw_numbers_are_marked(references: Any) -> None:
    remembers = references(task_of("self.n += 1; return x * self.n", "self.n = 0"))
    audit_task(remembers)
    assert not remembers.repeatable
    draws = references(task_of("return torch.nn.functional.dropout(x)"))
    assert (audit_task(draws), draws.repeatable) == ([], False)


def test_an_audit_leaves_the_reference_as_it_was(references: Any) -> None:
    reference = references(TASKS["a layer"][0])
    inputs = reference.inputs(1)
    before = reference.answer(inputs).value
    audit_task(reference)
    assert (reference.answer(inputs).value == before).all()
