"""Mutation operators: small mistakes in the text of a kernel, in Python, Triton, C, C++ and CUDA.

An operator finds places in a text and names what stands there instead. A mutant has one mistake.
Operators of Python read its syntax tree; those of C, C++ and CUDA match the text of strings that
hold such code. Whether a mutant compiles and computes something else is not known here.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One mistake: what stands at a place of the text instead."""

    family: str
    start: int
    """In bytes of UTF-8, as `end`."""
    end: int
    text: str

    def apply(self, data: bytes) -> str:
        """Return the text with the mistake."""
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


@dataclass(frozen=True)
class Mutant:
    """A kernel with one mistake."""

    family: str
    line: int
    """Where the mistake is."""
    change: str
    """What stood there, and what stands there now."""
    code: str


def mutate(code: str, most_each: int) -> list[Mutant]:
    """Return the mutants of a kernel, `most_each` at most by family; the same text gives the same.

    >>> code = "class ModelNew:\\n def forward(self, x):\\n  return x + 1"
    >>> [one.change for one in mutate(code, 1) if one.family == "operator"]
    ['x + 1 -> x - (1)']
    """
    data = code.encode()
    by_family: defaultdict[str, list[Change]] = defaultdict(list)
    for change in (*_find_in_python(data), *_find_in_native(data), *_wrap_forward(data)):
        by_family[change.family].append(change)
    mutants: list[Mutant] = []
    for family, changes in sorted(by_family.items()):
        changes.sort(key=lambda one: hashlib.sha256(f"{code}{one}".encode()).digest())
        for change in changes[: 1 if family in _WRAPPED else most_each]:
            before = data[change.start : change.end].decode()
            line = data[: change.start].count(b"\n") + 1
            words = " ".join(f"{before} -> {change.text}".split())
            mutants.append(Mutant(family, line, words[:160], change.apply(data)))
    return mutants


# Python and Triton

_SWAPS = {
    "reduction": {
        "sum": "mean", "mean": "sum", "amax": "amin", "amin": "amax", "max": "min", "min": "max",
        "cumsum": "cumprod", "argmax": "argmin", "logsumexp": "sum", "maximum": "minimum",
    },
    "function": {
        "exp": "exp2", "log": "log2", "sqrt": "abs", "rsqrt": "reciprocal", "erf": "tanh",
        "tanh": "sin", "sigmoid": "tanh", "softmax": "log_softmax", "relu": "abs",
        "softplus": "relu", "gelu": "silu", "silu": "gelu", "mish": "silu", "abs": "relu",
    },
    "uninitialized": {"zeros": "empty", "zeros_like": "empty_like", "full": "empty"},
}  # fmt: skip
_DROPPED = {
    "layout": ("contiguous", "transpose", "t", "permute", "flip", "swapaxes"),
    "precision": ("float", "double", "type_as"),
    "alias": ("clone",),
    "range": ("clamp", "clamp_min", "clamp_max"),
    "term": ("square", "abs", "sqrt", "rsqrt", "unsqueeze", "masked_fill", "masked_fill_", "exp"),
}
"""Methods that a mistake leaves out, by family."""
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.MatMult: "*", ast.FloorDiv: "/",
}  # fmt: skip
_BOUNDS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=",
}  # fmt: skip
_NO_KERNELS = re.compile(r"build|compile|load|library|source|reset_parameters|setup|launch_bound")
"""Functions that compute nothing."""


class _Places:
    """Byte offsets of nodes in a text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[end_line - 1] + end_column,
        )

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()


def _find_in_python(data: bytes) -> Iterator[Change]:
    places = _Places(data)
    tree = ast.parse(data)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or _NO_KERNELS.search(function.name):
            continue
        returned = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Return)}
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp):
                yield from _change_operation(node, places)
            elif isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from _change_comparison(node, places)
            elif isinstance(node, ast.Call):
                yield from _change_call(node, places)
            elif isinstance(node, ast.AugAssign):
                target, value = places.text(node.target), places.text(node.value)
                yield Change("reduction", *places.span(node), f"{target} = {value}")
            elif isinstance(node, ast.Constant):
                yield from _change_constant(node, places)
            elif isinstance(node, ast.Subscript):
                yield from _change_subscript(node, places)
            elif isinstance(node, ast.IfExp):
                yield Change("branch", *places.span(node), f"({places.text(node.body)})")
                yield Change("branch", *places.span(node), f"({places.text(node.orelse)})")
            elif (
                isinstance(node, ast.expr)
                and id(node) in returned
                and not isinstance(node, ast.Tuple | ast.Constant)
                and function.name == "forward"
            ):
                text = places.text(node)
                yield Change("precision", *places.span(node), f"({text}).bfloat16().float()")
                yield Change("precision", *places.span(node), f"({text}).half().float()")


def _change_operation(node: ast.BinOp, places: _Places) -> Iterator[Change]:
    span = places.span(node)
    left, right = places.text(node.left), places.text(node.right)
    is_index = re.search(r"stride|offset|pid|row|col|idx|index|BLOCK", left + right) is not None
    for kind, other in _OPERATORS.items():
        if isinstance(node.op, kind):
            family = "index" if is_index else "operator"
            yield Change(family, *span, f"{left} {other} ({right})")
    if isinstance(node.op, ast.Add | ast.Sub):
        family = "epsilon" if "eps" in right.lower() else "index" if is_index else "term"
        yield Change(family, *span, f"({left})")
    if isinstance(node.op, ast.Mult | ast.Div):
        yield Change("stride" if is_index else "factor", *span, f"({left})")
    if isinstance(node.op, ast.Mult | ast.Add):
        yield Change("stride" if is_index else "factor", *span, f"({right})")
    if isinstance(node.op, ast.MatMult | ast.Sub | ast.Div):
        yield Change("order", *span, f"({right}) {_sign(node.op)} ({left})")


def _sign(operator: ast.operator) -> str:
    return (
        "@" if isinstance(operator, ast.MatMult) else "-" if isinstance(operator, ast.Sub) else "/"
    )


def _change_comparison(node: ast.Compare, places: _Places) -> Iterator[Change]:
    left, right = places.text(node.left), places.text(node.comparators[0])
    for kind, other in _BOUNDS.items():
        if isinstance(node.ops[0], kind):
            yield Change("boundary", *places.span(node), f"{left} {other} {right}")
    if isinstance(node.ops[0], ast.Lt):
        yield Change("boundary", *places.span(node), f"{left} < {right} - 1")
        yield Change("mask", *places.span(node), f"{left} >= 0")


def _change_call(node: ast.Call, places: _Places) -> Iterator[Change]:
    if isinstance(node.func, ast.Attribute):
        owner, name = places.text(node.func.value), node.func.attr
        start = places.span(node.func.value)[1]
        for family, swaps in _SWAPS.items():
            if name in swaps:
                yield Change(family, start, places.span(node.func)[1], f".{swaps[name]}")
        for family, names in _DROPPED.items():
            if name in names and owner not in ("torch", "tl", "F", "math", "np"):
                yield Change(family, *places.span(node), f"({owner})")
            elif name in names and node.args and owner in ("torch", "tl"):
                yield Change(family, *places.span(node), f"({places.text(node.args[0])})")
        if name == "where" and len(node.args) == 3:
            yield Change("mask", *places.span(node), f"({places.text(node.args[1])})")
        if name in ("addcmul", "baddbmm", "addmm", "fma") and len(node.args) >= 2:
            yield Change("term", *places.span(node), f"({places.text(node.args[0])})")
        if name == "atomic_add" and len(node.args) >= 2:
            pointer, value = (places.text(one) for one in node.args[:2])
            text = f"tl.store({pointer}, tl.load({pointer}) + {value})"
            yield Change("synchronization", *places.span(node), text)
        if name in ("debug_barrier", "synchronize"):
            yield Change("synchronization", *places.span(node), "None")
    pairs = list(zip(node.args, node.args[1:], strict=False))
    for first, second in pairs:
        texts = places.text(first), places.text(second)
        plain = (ast.Name, ast.Attribute, ast.Subscript)
        if isinstance(first, plain) and isinstance(second, plain) and texts[0] != texts[1]:
            start, end = places.span(first)[0], places.span(second)[1]
            yield Change("arguments", start, end, f"{texts[1]}, {texts[0]}")
    for keyword in node.keywords:
        if keyword.arg in ("dim", "axis"):
            span = places.span(keyword.value)
            text = places.text(keyword.value)
            yield Change("axis", *span, "0" if text not in ("0", "-2") else "-1")
        elif keyword.arg == "mask":
            yield Change("mask", *places.span(keyword.value), "None")
        elif keyword.arg == "other":
            yield Change("mask", *places.span(keyword.value), "0.0")
            yield Change("mask", *places.span(keyword.value), "1.0")
        elif isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            yield Change("option", *places.span(keyword.value), str(not keyword.value.value))
        elif keyword.arg in ("eps", "alpha", "beta", "scale", "weight", "bias"):
            text = places.text(keyword.value)
            family = "epsilon" if keyword.arg == "eps" else "factor"
            yield Change(family, *places.span(keyword.value), f"({text}) * 1.5")


def _change_constant(node: ast.Constant, places: _Places) -> Iterator[Change]:
    value = node.value
    if isinstance(value, float) and value and abs(value) < 1e-3:
        yield Change("epsilon", *places.span(node), "0.0")
        yield Change("epsilon", *places.span(node), repr(value * 1e4))
    elif isinstance(value, float) and abs(value) < 1e30:
        yield Change("constant", *places.span(node), repr(value * 1.01 if value else 1.0))
        yield Change("constant", *places.span(node), repr(value + 0.001))
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 4:
        yield Change("index", *places.span(node), str(value + 1))
        yield Change("index", *places.span(node), str(value - 1))


def _change_subscript(node: ast.Subscript, places: _Places) -> Iterator[Change]:
    slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for one in slices:
        if isinstance(one, ast.Slice) and one.upper is not None:
            yield Change("boundary", *places.span(one.upper), f"{places.text(one.upper)} - 1")
        if isinstance(one, ast.Slice) and one.lower is not None:
            yield Change("boundary", *places.span(one.lower), f"{places.text(one.lower)} + 1")


_WRAPPER = """

_mutated_forward = ModelNew.forward


def _forward(self, *inputs, **named):
{body}

ModelNew.forward = _forward
"""
_CALL = "_mutated_forward(self, *inputs, **named)"
_WRAPPED = {
    "stale cache": (
        """
    key = tuple(one.shape for one in inputs if hasattr(one, "shape"))
    kept = self.__dict__.setdefault("_kept", {})
    if key not in kept:
        kept[key] = CALL
    return kept[key]""",
        """
    key = tuple(one.data_ptr() for one in inputs if hasattr(one, "data_ptr"))
    kept = self.__dict__.setdefault("_kept", {})
    if key not in kept:
        kept[key] = CALL.clone()
    return kept[key].clone()""",
        """
    key = [float(one.flatten()[0]) for one in inputs if hasattr(one, "flatten") and one.numel()]
    key = tuple(round(one, 1) for one in key)
    kept = self.__dict__.setdefault("_kept", {})
    if key not in kept:
        kept[key] = CALL
    return kept[key]""",
    ),
    "tail": (
        """
    out = CALL.clone()
    out[..., -1:] = out[..., :1]
    return out""",
        """
    out = CALL.clone()
    out[-1:] = out[:1]
    return out""",
        """
    out = CALL.clone()
    if out.dim():
        out[..., out.shape[-1] // 32 * 32 :] = 0
    return out""",
        """
    out = CALL.clone()
    if out.dim() > 1:
        out[out.shape[0] // 16 * 16 :] = 0
    return out""",
    ),
    "rare values": (
        """
    out = CALL
    return out.clamp(-4.0, 4.0)""",
        """
    inputs = tuple(
        one.clamp(-4.6, 4.6) if hasattr(one, "clamp") and one.is_floating_point() else one
        for one in inputs
    )
    return CALL""",
    ),
    "slight": (
        """
    return CALL * 1.0003""",
        """
    out = CALL
    return out + 3e-4 * out.square().mean().sqrt()""",
        """
    out = CALL
    return out + 1e-3 * out.abs().mean() * torch.randn_like(out)""",
    ),
    "one element": (
        """
    out = CALL.clone()
    out.view(-1)[-1] *= 1.01
    return out""",
        """
    out = CALL.clone()
    out.view(-1)[int(torch.randint(out.numel(), ()))] *= 1.1
    return out""",
    ),
    "rare calls": (
        """
    out = CALL
    self.__dict__["_calls"] = calls = self.__dict__.get("_calls", 0) + 1
    return out * 1.01 if calls % 8 == 0 else out""",
        """
    out = CALL
    first = next(one for one in inputs if hasattr(one, "flatten"))
    return -out if int(abs(float(first.flatten()[0])) * 1e4) % 8 == 0 else out""",
    ),
    "buffer": (
        """
    out = CALL
    kept = self.__dict__.get("_buffer")
    if kept is None or kept.shape != out.shape:
        self.__dict__["_buffer"] = kept = out.clone()
    blended = torch.where(torch.rand_like(out.float()) < 1e-4, kept, out)
    self.__dict__["_buffer"] = out.clone()
    return blended""",
    ),
}  # fmt: skip
"""Mistakes around a whole call, by family."""


def _wrap_forward(data: bytes) -> Iterator[Change]:
    if b"class ModelNew" not in data or b"def forward" not in data:
        return
    for family, bodies in _WRAPPED.items():
        for body in bodies:
            text = _WRAPPER.format(body=body.strip("\n").replace("CALL", _CALL))
            yield Change(family, len(data), len(data), text)


# C, C++ and CUDA

_Replace = Callable[[re.Match[str]], str | None]
_TERM = r"[\w.]+(?:\[[^\[\]]*\]|\([^()]*\))?"


def _epsilon_or(family: str) -> Callable[[re.Match[str]], str]:
    return lambda match: "epsilon" if "eps" in match[0].lower() else family


_MATH = {
    "expf": "exp2f", "exp": "exp2", "logf": "log2f", "sqrtf": "fabsf", "fabsf": "", "tanhf": "sinf",
    "erff": "tanhf", "rsqrtf": "1.0f / fabsf", "fmaxf": "fminf", "fminf": "fmaxf",
    "__expf": "exp2f", "log1pf": "logf", "abs": "", "sqrt": "fabs", "max": "min", "min": "max",
}  # fmt: skip
_NATIVE: tuple[tuple[str, str, _Replace], ...] = (
    ("boundary", r"(?<=[\w\])]) < (?=[\w(])", lambda m: " <= "),
    ("boundary", r"(?<=[\w\])]) < (\w+)(?=[;)])", lambda m: f" < {m[1]} - 1"),
    ("boundary", r"(?<=[;(] )?\b(\w+) = 0(?=; \1 <)", lambda m: f"{m[1]} = 1"),
    ("boundary", r"(?<=[\w\])]) (?:<=|>=) (?=[\w(])", lambda m: m[0].replace("=", "")),
    ("mask", r"\bif \(([^()]*(?:\([^()]*\))?[^()]*)\)", lambda m: "if (true || 1)"),
    ("mask", r"\bif \(([^()]*(?:\([^()]*\))?[^()]*)\)", lambda m: f"if (!({m[1]}))"),
    ("branch", r"\? ([^?:;]+) : ([^?:;,)]+)", lambda m: f"? {m[2]} : {m[2]}"),
    ("reduction", r"(?<=\w) \+= |(?<=\]) \+= ", lambda m: " = "),
    ("reduction", r"(?<== )-?INFINITY|(?<== )-FLT_MAX|(?<== )-1e30f?", lambda m: "0"),
    ("reduction", r"(float|double) (\w+) = 0(\.0f?)?(?=[,;])", lambda m: f"{m[1]} {m[2]} = 1"),
    ("precision", r"\bdouble (?=\w+ = )", lambda m: "float "),
    ("precision", r"\bfloat (?=\w+ = 0)", lambda m: "_Float16 "),
    ("precision", r"\bconst float (?=\w+ = [^;{]*[*/+][^;{]*;)", lambda m: "const _Float16 "),
    ("precision", r"\bfloat (?=\w+ = 0)", lambda m: "int "),
    ("synchronization", r"__syncthreads\(\);|__syncwarp\(\);", lambda m: ""),
    ("synchronization", r" reduction\([^()]*\)", lambda m: ""),
    ("synchronization", r"atomicAdd\((&?[^,()]+), ([^;]+)\);", lambda m: f"*({m[1]}) += {m[2]};"),
    ("stale cache", r"(?<=\s)(float|double) (?=\w+ = (?:0|-INF))", lambda m: f"static {m[1]} "),
    ("stride", r"(?<=\w) \* (rows|cols|n|m|k|width|height|length|stride|inner|outer)\b",
     lambda m: f" * ({m[1]} - 1)"),
    ("stride", r"(?<=[\w\])]) \* (\w+) \+ ", lambda m: " + "),
    ("index", rf"\[([^\[\]]*) \+ {_TERM}\]", lambda m: f"[{m[1]}]"),
    ("index", r"\[(\w+)\](?= [-+*/])", lambda m: f"[{m[1]} ? {m[1]} - 1 : 0]"),
    ("index", r"(?<=\w) \+ 1(?=[\];])", lambda m: ""),
    ("index", r"threadIdx\.x|blockIdx\.x", lambda m: f"({m[0]} ^ 1)"),
    ("term", rf" \+ {_TERM}(?=[;) ])", lambda m: ""),
    ("term", rf"(?<=[\w\])]) - {_TERM}(?=[;) ])", lambda m: ""),
    ("factor", rf"(?<=[\w\])]) [*/] {_TERM}(?=[;) ])", lambda m: ""),
    ("operator", r"(?<=[\w\])]) \+ (?=[\w(])", lambda m: " - "),
    ("operator", r"(?<=[\w\])]) - (?=[\w(])", lambda m: " + "),
    ("operator", r"(?<=[\w\])]) \* (?=[\w(])", lambda m: " + "),
    ("operator", r"(?<=[\w\])]) / (?=[\w(])", lambda m: " * "),
    ("function", rf"\b({'|'.join(map(re.escape, _MATH))})(?=\()", lambda m: _MATH[m[1]]),
    ("epsilon", r"\b\d(?:\.\d+)?e-\d+f?\b", lambda m: "0.01f"),
    ("constant", r"\b\d+\.\d+(?=f?\b)", lambda m: f"{float(m[0]) * 1.01 or 1.0:.6f}"),
)  # fmt: skip
_IS_NATIVE = re.compile(r"(float|double|half|__global__|extern)[^{]*\{", re.DOTALL)
_DECLARATION = re.compile(r"#include|#define|#pragma once|extern \"C\"|typedef|using ")


def _find_in_native(data: bytes) -> Iterator[Change]:
    places = _Places(data)
    for node in ast.walk(ast.parse(data)):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if not _IS_NATIVE.search(node.value):
            continue
        start, end = places.span(node)
        text = data[start:end].decode()
        for family, pattern, replace in _NATIVE:
            for match in re.finditer(pattern, text):
                line_start = text.rfind("\n", 0, match.start()) + 1
                line = text[line_start : text.find("\n", match.end())]
                written = replace(match)
                if written is None or (_DECLARATION.search(line) and "pragma omp" not in line):
                    continue
                named = _epsilon_or(family)(match)
                first = start + len(text[: match.start()].encode())
                yield Change(named, first, first + len(match[0].encode()), written)
