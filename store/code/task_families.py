"""Families of tasks, read from their code, and the split into train and test that follows them."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from store.code.python_syntax import parse_python

NETWORK_LAYERS = 3
"""A task with at least this many convolutions or linear layers is a network."""

FUSED_STEPS = 3
"""With at least this many operations in `forward`, a convolution or product counts as fused."""

OTHER = "other"

# In order of weight: a task belongs to the first family that one of its operations names.
# Matched against the last part of a call's name, in lower case and without underscores.
_OPERATIONS: dict[str, str] = {
    "rnn": "lstm gru rnn lstmcell grucell rnncell",
    "attention": (
        "multiheadattention scaleddotproductattention transformerencoder "
        "transformerencoderlayer transformerdecoderlayer maskedfill"
    ),
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "conv_transpose3d": "convtranspose3d",
    "conv_transpose2d": "convtranspose2d",
    "conv_transpose1d": "convtranspose1d",
    "conv3d": "conv3d",
    "conv2d": "conv2d",
    "conv1d": "conv1d",
    "matmul": "linear matmul mm bmm mv addmm baddbmm einsum tensordot dot",
    "softmax": "softmax logsoftmax softmin",
    "norm": (
        "batchnorm batchnorm1d batchnorm2d batchnorm3d instancenorm instancenorm1d "
        "instancenorm2d instancenorm3d groupnorm layernorm rmsnorm norm normalize vectornorm"
    ),
    "pooling": " ".join(
        f"{kind}pool{size}d"
        for kind in ("max", "avg", "lp", "adaptivemax", "adaptiveavg")
        for size in (1, 2, 3)
    ),
    "reduction": "sum mean max min prod argmax argmin amax amin all any std var logsumexp median",
}
_FAMILY_OF = {word: name for name, words in _OPERATIONS.items() for word in words.split()}
_HEAVY = (*(name for name in _OPERATIONS if name.startswith("conv")), "matmul")
_TAILS = ("softmax", "norm", "pooling", "reduction")
_TARGETS = frozenset(("target", "targets", "label", "labels", "negative"))


def classify_family(reference_code: str) -> str:
    """Return the family of a task: its most important operation, or its kind as a whole.

    The order: recurrent, attention, network (three or more convolutions or linear layers), scan,
    convolutions by kind, matmul, loss, softmax, norm, pooling, reduction, elementwise. A
    convolution or product that is fused with further operations is also named after the most
    important of them (conv3d_norm). Text that cannot be parsed or that has no Model is "other".

    >>> body = "def forward(self, a, b):\\n        return torch.matmul(a, b)"
    >>> classify_family(f"class Model:\\n    {body}")
    'matmul'
    """
    tree = parse_python(reference_code)
    if tree is None:
        return OTHER
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if not any(node.name == "Model" for node in classes):
        return OTHER
    nodes = [node for one in classes for node in ast.walk(one)]
    called = list(_list_called(nodes))
    operations = Counter(_FAMILY_OF[name] for name in called if name in _FAMILY_OF)
    operations["matmul"] += any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes
    )
    for name in ("rnn", "attention"):
        if operations[name]:
            return name
    # A list of layers is filled in a loop: its length is not in the text.
    layers = sum(name == "linear" or _FAMILY_OF.get(name, "").startswith("conv") for name in called)
    if layers >= NETWORK_LAYERS or {"sequential", "modulelist", "append"} & set(called):
        return "network"
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    has_loss = any(
        name.endswith(("loss", "crossentropy", "kldiv", "cosinesimilarity")) for name in called
    )
    divides = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) for n in nodes)
    for name in _OPERATIONS:
        if name == "softmax" and (arguments & _TARGETS or has_loss):
            return "loss"
        if operations[name]:
            if name in _HEAVY:
                # Calls, and arithmetic between values.
                steps = sum(
                    isinstance(node, ast.Call | ast.BinOp)
                    for one in classes
                    for method in one.body
                    if isinstance(method, ast.FunctionDef) and method.name == "forward"
                    for node in ast.walk(method)
                )
                tail = next((tail for tail in _TAILS if operations[tail]), "elementwise")
                return f"{name}_{tail}" if steps >= FUSED_STEPS else name
            # x / sum(|x|) and x / sqrt(mean(x²)) are norms written as expressions.
            return "norm" if name == "reduction" and divides else name
    return "elementwise"


def _list_called(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the last part of each called name, except for calls of the model's own layers."""
    for node in nodes:
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                own = isinstance(function.value, ast.Name) and function.value.id == "self"
                if not own:
                    yield function.attr.lower().replace("_", "")
            elif isinstance(function, ast.Name):
                yield function.id.lower().replace("_", "")


RULE = (
    "families in the order of sha256(suite, family), to test while it holds at most {share:g} of "
    "the tasks of every level"
)

_KERNELBENCH_TEST = (
    "conv1d conv3d conv3d_norm conv3d_softmax conv_transpose2d_norm conv_transpose2d_pooling "
    "conv_transpose2d_reduction conv_transpose2d_softmax conv_transpose3d "
    "conv_transpose3d_elementwise conv_transpose3d_reduction matmul_pooling pooling rnn"
)
# `choose_test` decided this split once, over the 250 tasks of revision v0. Every lake uses it, also
# for a part of the suite or for another revision.
_DECIDED = {"kernelbench": frozenset(_KERNELBENCH_TEST.split())}

EVALUATION_SUITES = frozenset({"sol-execbench"})
"""Suites whose license permits evaluation only: all of their families are on the test side."""
EVALUATION_RULE = "the license of the suite permits evaluation only"
_TEST_SHARE = 0.2


def split_rows(suite: str, families: Iterable[str]) -> list[dict[str, str]]:
    """Return rows of table splits: which side each family of a suite is on, by RULE.

    `families` has the family of each task; if it has each family once, all families weigh the same.
    The split of KernelBench is fixed and does not depend on the lake. Families of EVALUATION_SUITES
    are on the test side.
    """
    named = list(families)
    rule = EVALUATION_RULE if suite in EVALUATION_SUITES else RULE.format(share=_TEST_SHARE)
    test = {name for name in named if find_split(suite, name) == "test"}
    if find_split(suite, "") is None:
        test = choose_test(suite, named, [None] * len(named))
    return [
        {"suite": suite, "family": name, "split": "test" if name in test else "train", "rule": rule}
        for name in sorted(set(named))
    ]


def find_split(suite: str, family: str) -> str | None:
    """Return the side of a family in a suite with a fixed split; None for other suites."""
    if suite in EVALUATION_SUITES:
        return "test"
    test = _DECIDED.get(suite)
    if test is None:
        return None
    return "test" if family in test else "train"


def choose_test(
    suite: str, families: Sequence[str], levels: Sequence[int | None]
) -> frozenset[str]:
    """Return the families on the test side; `families` and `levels` have one entry per task.

    Takes families in the order of sha256(suite, family). A family goes to test if, in every level,
    the share of test tasks stays at or below _TEST_SHARE. Results play no role. If every family is
    too large, the smallest one goes to test, so that two families always give both sides.
    """
    size = Counter(zip(families, levels, strict=True))
    budget = {level: _TEST_SHARE * count for level, count in Counter(levels).items()}
    order = sorted(
        set(families), key=lambda name: hashlib.sha256(f"{suite}\0{name}".encode()).hexdigest()
    )
    test: set[str] = set()
    for name in order:
        if all(size[name, level] <= left for level, left in budget.items()):
            test.add(name)
            for level in budget:
                budget[level] -= size[name, level]
    if not test and len(order) > 1:
        total = Counter(families)
        test = {min(order, key=total.__getitem__)}
    return frozenset(test)
