"""Elementwise steps in four languages, and chains of them that depend on their input.

Every chain is tried on numbers from the normal distribution before it is used, in plain Python: it
stays finite and moderate, its answers differ, and each of its steps changes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from store.generated.writing.texts import Draw

_TRIED = 128
_LEAST_SPREAD = 0.1
_LEAST_CHANGE = 0.05
MOST = 50.0
"""Largest value that a chain may reach on the numbers it is tried on."""


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation on a value {v}, with a constant {k} or another tensor's element {a}."""

    title: str
    torch: str
    c: str = ""
    """The same in C; empty where it is the same text, like `triton`."""
    triton: str = ""
    value: Callable[[float, float, float], float]
    """The same in Python, of v, k and a."""
    inplace: str = ""
    """A statement that changes the tensor {v}; empty where there is none."""
    constant: tuple[float, float] | None = None
    tensor: str = ""
    """Name of the other tensor: y is a second input, others are parameters of the columns."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """An operation with its constant."""

    op: Op
    k: float = 0.0

    def fill(self, text: str, v: str, a: str = "", suffix: str = "") -> str:
        """Return a text of the operation with its variables filled in."""
        return (text or self.op.torch).format(v=v, k=f"{self.k:.2f}{suffix}", a=a)


@dataclass(frozen=True)
class Chain:
    """Steps one after another; with none of them, what a chain gives is its start."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def title(self) -> str:
        """The names of the steps in one line, such as "scale, GELU"."""
        return ", ".join(step.op.title for step in self.steps)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of second inputs."""
        return tuple(step.op.tensor for step in self.steps if step.op.tensor == "y")

    @property
    def params(self) -> tuple[str, ...]:
        """The names of parameters, in order of use."""
        return tuple(one for step in self.steps if (one := step.op.tensor) not in ("", "y"))

    def inplace(self, start: str = "x") -> list[str]:
        """Return what `torch` does with as few new tensors as there can be; `start` stays."""
        return self.torch(start, inplace=True)

    def torch(self, start: str = "x", *, inplace: bool = False) -> list[str]:
        """Return statements that leave the chain of `start` in v, each in a tensor of its own."""
        lines: list[str] = []
        for step in self.steps:
            operand = f"self.{step.op.tensor}" if step.op.tensor in self.params else step.op.tensor
            if lines and inplace and step.op.inplace:
                lines.append(step.fill(step.op.inplace, "v", operand))
            else:
                lines.append("v = " + step.fill(step.op.torch, "v" if lines else start, operand))
        return lines or [f"v = {start}"] * (start != "v")

    @property
    def c(self) -> list[str]:
        """C statements on a float v, at element i in column c."""
        lines: list[str] = []
        for step in self.steps:
            operand = f"{step.op.tensor}[{'c' if step.op.tensor in self.params else 'i'}]"
            lines.append(f"v = {step.fill(step.op.c, 'v', operand, 'f')};")
        return lines

    @property
    def triton(self) -> list[str]:
        """Triton statements on a block v, at offsets i under a mask."""
        lines: list[str] = []
        for step in self.steps:
            offsets = "i % cols" if step.op.tensor in self.params else "i"
            operand = f"tl.load({step.op.tensor} + {offsets}, mask)"
            lines.append("v = " + step.fill(step.op.triton, "v", operand))
        return lines

    def function(self, name: str = "pre", qualifier: str = "static") -> str:
        """Return the chain as a C function of one float; nothing where there are no steps."""
        if not self.steps:
            return ""
        body = "\n".join(f"  {line}" for line in [*self.c, "return v;"])
        return f"{qualifier} float {name}(float v) {{\n{body}\n}}\n"


def _sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


# fmt: off
_PLAIN: tuple[Op, ...] = (
    Op(title="scale", torch="{v} * {k}", inplace="{v}.mul_({k})",
       constant=(0.25, 2.5), value=lambda v, k, a: v * k),
    Op(title="shift", torch="{v} + {k}", inplace="{v}.add_({k})",
       constant=(0.2, 1.5), value=lambda v, k, a: v + k),
    Op(title="drop", torch="{v} - {k}", inplace="{v}.sub_({k})",
       constant=(0.2, 1.5), value=lambda v, k, a: v - k),
    Op(title="ReLU", torch="torch.relu({v})", inplace="{v}.relu_()",
       c="{v} > 0.0f ? {v} : 0.0f", triton="tl.maximum({v}, 0.0)",
       value=lambda v, k, a: max(v, 0.0)),
    Op(title="leaky ReLU", torch="F.leaky_relu({v}, {k})", inplace="F.leaky_relu_({v}, {k})",
       c="{v} > 0.0f ? {v} : {v} * {k}", triton="tl.where({v} > 0, {v}, {v} * {k})",
       constant=(0.05, 0.4), value=lambda v, k, a: v if v > 0 else v * k),
    Op(title="sigmoid", torch="torch.sigmoid({v})", inplace="{v}.sigmoid_()",
       c="1.0f / (1.0f + expf(-{v}))", triton="tl.sigmoid({v})",
       value=lambda v, k, a: _sigmoid(v)),
    Op(title="tanh", torch="torch.tanh({v})", inplace="{v}.tanh_()", c="tanhf({v})",
       triton="2.0 * tl.sigmoid(2.0 * {v}) - 1.0", value=lambda v, k, a: math.tanh(v)),
    Op(title="SiLU", torch="F.silu({v})", inplace="F.silu({v}, inplace=True)",
       c="{v} / (1.0f + expf(-{v}))", triton="{v} * tl.sigmoid({v})",
       value=lambda v, k, a: v * _sigmoid(v)),
    Op(title="GELU", torch="F.gelu({v})",
       c="0.5f * {v} * (1.0f + erff({v} * 0.70710678f))",
       triton="0.5 * {v} * (1.0 + tl.erf({v} * 0.70710678))",
       value=lambda v, k, a: 0.5 * v * (1 + math.erf(v / math.sqrt(2)))),
    Op(title="softplus", torch="F.softplus({v})",
       c="({v} > 0.0f ? {v} : 0.0f) + log1pf(expf(-fabsf({v})))",
       triton="tl.maximum({v}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({v})))",
       value=lambda v, k, a: max(v, 0.0) + math.log1p(math.exp(-abs(v)))),
    Op(title="square", torch="{v} * {v}", inplace="{v}.square_()", value=lambda v, k, a: v * v),
    Op(title="absolute value", torch="torch.abs({v})", inplace="{v}.abs_()", c="fabsf({v})",
       triton="tl.abs({v})", value=lambda v, k, a: abs(v)),
    Op(title="cut", torch="torch.clamp({v}, -{k}, {k})", inplace="{v}.clamp_(-{k}, {k})",
       c="{v} < -{k} ? -{k} : {v} > {k} ? {k} : {v}",
       triton="tl.minimum(tl.maximum({v}, -{k}), {k})", constant=(0.5, 1.5),
       value=lambda v, k, a: min(max(v, -k), k)),
    Op(title="softsign", torch="F.softsign({v})", c="{v} / (1.0f + fabsf({v}))",
       triton="{v} / (1.0 + tl.abs({v}))", value=lambda v, k, a: v / (1 + abs(v))),
    Op(title="root", torch="torch.sqrt(torch.abs({v}) + {k})",
       inplace="{v}.abs_().add_({k}).sqrt_()", c="sqrtf(fabsf({v}) + {k})",
       triton="tl.sqrt(tl.abs({v}) + {k})", constant=(0.1, 1.0),
       value=lambda v, k, a: math.sqrt(abs(v) + k)),
    Op(title="decay", torch="torch.exp(-torch.abs({v}))", inplace="{v}.abs_().neg_().exp_()",
       c="expf(-fabsf({v}))", triton="tl.exp(-tl.abs({v}))",
       value=lambda v, k, a: math.exp(-abs(v))),
    Op(title="bell", torch="torch.exp(-{v} * {v})", inplace="{v}.square_().neg_().exp_()",
       c="expf(-{v} * {v})", triton="tl.exp(-{v} * {v})",
       value=lambda v, k, a: math.exp(-v * v)),
    Op(title="inverse", torch="1.0 / ({v} * {v} + {k})",
       inplace="{v}.square_().add_({k}).reciprocal_()", c="1.0f / ({v} * {v} + {k})",
       constant=(0.5, 2.0), value=lambda v, k, a: 1 / (v * v + k)),
    Op(title="ELU", torch="F.elu({v})", inplace="F.elu({v}, inplace=True)",
       c="{v} > 0.0f ? {v} : expm1f({v})", triton="tl.where({v} > 0, {v}, tl.exp({v}) - 1.0)",
       value=lambda v, k, a: v if v > 0 else math.expm1(v)),
    Op(title="hard swish", torch="F.hardswish({v})", inplace="F.hardswish({v}, inplace=True)",
       c="{v} * fminf(fmaxf({v} + 3.0f, 0.0f), 6.0f) / 6.0f",
       triton="{v} * tl.minimum(tl.maximum({v} + 3.0, 0.0), 6.0) / 6.0",
       value=lambda v, k, a: v * min(max(v + 3, 0.0), 6.0) / 6),
    Op(title="sine", torch="torch.sin({v})", inplace="{v}.sin_()", c="sinf({v})",
       triton="tl.sin({v})", value=lambda v, k, a: math.sin(v)),
    Op(title="cosine", torch="torch.cos({v})", inplace="{v}.cos_()", c="cosf({v})",
       triton="tl.cos({v})", value=lambda v, k, a: math.cos(v)),
    Op(title="logarithm", torch="torch.log1p(torch.abs({v}))", inplace="{v}.abs_().log1p_()",
       c="log1pf(fabsf({v}))", triton="tl.log(1.0 + tl.abs({v}))",
       value=lambda v, k, a: math.log1p(abs(v))),
)
_WITH_TENSOR: tuple[Op, ...] = (
    Op(title="sum", torch="{v} + {a}", inplace="{v}.add_({a})",
       tensor="y", value=lambda v, k, a: v + a),
    Op(title="difference", torch="{v} - {a}", inplace="{v}.sub_({a})",
       tensor="y", value=lambda v, k, a: v - a),
    Op(title="product", torch="{v} * {a}", inplace="{v}.mul_({a})",
       tensor="y", value=lambda v, k, a: v * a),
    Op(title="maximum", torch="torch.maximum({v}, {a})", c="{v} > {a} ? {v} : {a}",
       triton="tl.maximum({v}, {a})", tensor="y", value=lambda v, k, a: max(v, a)),
    Op(title="column scale", tensor="scale", torch="{v} * {a}", inplace="{v}.mul_({a})",
       value=lambda v, k, a: v * a),
    Op(title="column bias", tensor="bias", torch="{v} + {a}", inplace="{v}.add_({a})",
       value=lambda v, k, a: v + a),
)
# fmt: on
# Operations after a product of matrices, which work for values of any size.
AFTER_PRODUCT = ("scale", "ReLU", "leaky ReLU", "absolute value", "softsign")
# Operations that cost less than reading the element, so that how the work is divided decides.
CHEAP = (
    "scale", "shift", "drop", "ReLU", "leaky ReLU", "square", "absolute value", "cut", "softsign",
    "root", "inverse",
)  # fmt: skip


def draw_chain(
    draw: Draw, count: int, *, tensors: bool = False, only: Sequence[str] = (), most: float = MOST
) -> Chain:
    """Return a chain of `count` steps in which every step matters.

    Args:
        draw: Where it comes from.
        count: Number of steps.
        tensors: Whether steps may take a second input `y` or parameters `scale` and `bias`.
        only: Titles of the operations to choose from; empty for all.
        most: Largest value that it may reach.
    """
    known = [op for op in _PLAIN if not only or op.title in only]
    if tensors:
        known += _WITH_TENSOR
    while True:
        steps: list[Step] = []
        for _ in range(count):
            op = draw.choice(known)
            k = draw.number(*op.constant) if op.constant else 0.0
            steps.append(Step(op=op, k=k))
        names = [step.op.tensor for step in steps if step.op.tensor]
        if len(names) == len(set(names)) and _is_lively(steps, most):
            return Chain(tuple(steps))


def _is_lively(steps: Sequence[Step], most: float) -> bool:
    whole = _answers(steps)
    if max(map(abs, whole)) > most:
        return False
    mean = sum(whole) / len(whole)
    if sum((v - mean) ** 2 for v in whole) / len(whole) < _LEAST_SPREAD**2:
        return False
    for place in range(len(steps)):
        without = _answers([*steps[:place], *steps[place + 1 :]])
        changes = [abs(a - b) for a, b in zip(whole, without, strict=True)]
        if sum(changes) / len(changes) < _LEAST_CHANGE:
            return False
    return True


def _answers(steps: Sequence[Step]) -> list[float]:
    answers: list[float] = []
    for v, others in _samples():
        for step in steps:
            v = step.op.value(v, step.k, others.get(step.op.tensor, 0.0))
            if abs(v) > 200:
                return [math.inf, -math.inf]
        answers.append(v)
    return answers


@cache
def _samples() -> tuple[tuple[float, dict[str, float]], ...]:
    """Return normal numbers for x, y and the parameters, the same ones on every machine."""
    draw, normal = Draw("samples"), NormalDist()

    def draw_normal() -> float:
        return normal.inv_cdf((draw.integer_below(9999) + 1) / 10001)

    return tuple(
        (draw_normal(), {name: draw_normal() for name in ("y", "scale", "bias")})
        for _ in range(_TRIED)
    )
