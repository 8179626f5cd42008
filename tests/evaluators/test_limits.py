"""The list of what the judge cannot judge: complete, printed, and named by every such refusal."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import commands
import pytest

import evaluators
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.limits.kinds import LIMITS, LISTED_BY, refuse_limit
from evaluators.timing import candidate_process

ROOM = Path(evaluators.__file__).parent
SOURCES = [
    *(file for file in ROOM.rglob("*.py") if file.parent.name != "limits"),
    ROOM.parent / "store" / "importers" / "reading" / "task_formats.py",
]
HEAD = "import os, torch\nfrom torch import nn\n"
MODULE = """
class {name}({base}):
    def __init__(self, *given):
        super().__init__()
        {made}
    def forward(self, x):
        {forward}
"""
INPUTS = "def get_inputs():\n    return {inputs}\n"
PLAIN = {"inputs": "[torch.randn(4)]", "forward": "return x * 2", "made": "pass"}
# What differs from a plain task that doubles its input.
TASKS: dict[str, dict[str, str]] = {
    "backward": {"forward": "y = x.clone().requires_grad_(); y.sum().backward(); return y.grad"},
    "value_types": {"inputs": "[torch.randn(4), {1, 2}]"},
    "dict_keys": {"inputs": "[{(1, 2): torch.randn(4)}]"},
    "containers": {
        "inputs": "[[torch.randn(4)]]",
        "forward": "x.append(x[0] * 2); return x[0]",
    },
    "nesting": {
        "inputs": "[nest(12)]",
        "before": "def nest(n): return [nest(n - 1)] if n else torch.randn(4)",
    },
    "value_count": {"inputs": "[[torch.randn(1) for _ in range(9000)]]"},
    "value_bytes": {"inputs": "[torch.zeros(1).expand(1 << 34)]"},
    "sparse": {"inputs": "[torch.randn(4, 4).to_sparse()]"},
    "nested_tensors": {"forward": "return torch.nested.nested_tensor([x, x[:2]])"},
    "quantized": {"inputs": "[torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)]"},
    "tensor_subclasses": {
        "forward": "return x.as_subclass(Own)",
        "before": "class Own(torch.Tensor): pass",
    },
    "element_types": {"inputs": "[torch.empty(4, dtype=torch.uint4)]"},
    "devices": {"inputs": "[torch.randn(4, device='meta')]"},
    "gpu_only": {"inputs": "[torch.randn(4, device='cuda')]"},
    "isolation": {"made": "open('weights.pt')"},
    # Many draws: two answers that resemble each other by luck are no sign of a seed.
    "entropy": {
        "inputs": "[torch.randn(64)]",
        "forward": "return x + torch.tensor(list(os.urandom(64)))",
    },
    "module_copies": {
        "made": "import threading; self.lock = threading.Lock(); "
        "self.w = torch.rand(4, generator=torch.Generator().manual_seed(os.urandom(1)[0]))",
    },
    "module_types": {"base": "object"},
    "task_form": {"name": "Net"},
    "several_gpus": {
        "made": "torch.distributed.init_process_group('gloo', 'tcp://127.0.0.1:29591', rank=0, "
        "world_size=1)",
    },
}
ELSEWHERE = {
    "comparison": "test_own_faults.py",
    "comparison_memory": "test_own_faults.py",
    "languages": "below",
    "task_time": "takes 300 s",
}


def write_task(
    inputs: str = PLAIN["inputs"],
    forward: str = PLAIN["forward"],
    made: str = PLAIN["made"],
    base: str = "nn.Module",
    name: str = "Model",
    before: str = "",
) -> str:
    module = MODULE.format(name=name, base=base, made=made, forward=forward)
    return f"{HEAD}{before}\n{module}{INPUTS.format(inputs=inputs)}"


def iterate_names() -> Iterator[str]:
    """Yield every text in the code that could be the name of a limit."""
    for file in SOURCES:
        text = file.read_text("utf-8")
        if "refuse_limit" in text or "doctor --limits" in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
                    yield from re.findall(r"limit (\w+)", node.value)


def test_every_limit_is_used_and_every_used_name_is_listed() -> None:
    assert set(LIMITS) - set(iterate_names()) == set()
    for file in SOURCES:
        text = file.read_text("utf-8")
        used = re.findall(r'refuse_limit\(\s*"(\w+)"', text)
        used += re.findall(r"\(limit (\w+)\)", text)
        assert set(used) <= set(LIMITS), file
    with pytest.raises(KeyError):
        refuse_limit("unknown", "a detail")


def test_every_limit_has_a_task_that_shows_it() -> None:
    assert set(TASKS) | set(ELSEWHERE) == set(LIMITS)


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("name", TASKS)
def test_a_refusal_names_its_limit_and_blames_no_kernel(bench: Bench, name: str) -> None:
    require_limit(bench, name)


def test_a_slow_task_is_asked_again_before_a_kernel_is_blamed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_process, "_COLD_S", 0.0)  # every first answer is slow
    require_limit(bench, "entropy")


def require_limit(bench: Bench, name: str) -> None:
    code = HEAD + MODULE.format(**{**PLAIN, "name": "ModelNew", "base": "nn.Module"})
    case = Case(
        kernel_id="k",
        task_id="t",
        workload_id="w",
        code=code,
        task_code=write_task(**TASKS[name]),
    )
    [row] = judge(case, bench, Config(protocol="training", calls=2, draw_shapes=0))["evaluations"]
    assert (row["status"], row["reason"]) == ("evaluator_error", "reference_failed"), row
    assert row["message"].endswith(f"(limit {name}; {LISTED_BY})"), row["message"]


def test_the_list_is_printed(tmp_path: Path) -> None:
    printed = commands.run(["evaluators", "doctor", "--limits", "--format", "json"], cwd=tmp_path)
    assert [row["limit"] for row in json.loads(printed.stdout)] == list(LIMITS)
    (tmp_path / "task.py").write_text(write_task())
    (tmp_path / "kernel.hip").write_text("")
    words = ["evaluators", "check", "kernel.hip", "--task", "task.py"]
    refused = commands.run(words, cwd=tmp_path)
    assert refused.returncode == 1, refused
    assert "(limit languages;" in " ".join(refused.stderr.split()), refused.stderr
