"""Facts that Python's parser finds in a kernel: calls, flags, Triton kernels, embedded C++."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from store.code import constant_answers
from store.code.languages import TRITON
from store.code.python_syntax import Names, SyntaxParts, collect_syntax, parse_python, split_names

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_LAYERS = frozenset(("linear", "mm", "bmm", "matmul", "addmm", "baddbmm")) | {
    f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)
}
_NODES = 200
"""Nodes of an expression that are read: each part of a chain of calls asks for the whole chain."""
_RESHAPE = frozenset(("unsqueeze", "view", "reshape"))
_TRANSPOSE = frozenset(("T", "t", "transpose", "permute", "swapaxes"))


class Weights:
    """The names of weights and biases in a text."""

    def __init__(self, found: SyntaxParts) -> None:
        self._aliases: frozenset[str] = frozenset()
        self._aliases = frozenset(
            target.id
            for target, value in found.targets
            if isinstance(target, ast.Name)
            and isinstance(value, ast.Attribute)
            and self.mentions(value)
        )

    def is_weight(self, name: str) -> bool:
        """Return whether a name is that of a weight or bias of a layer."""
        words = set(name.lower().split("_"))
        return name in self._aliases or (
            not words.isdisjoint(("weight", "bias"))
            and words.isdisjoint(("grad", "attn", "attention", "position", "size", "shape"))
        )

    def mentions(self, node: ast.AST) -> bool:
        """Return whether an expression reads a weight or bias near its top."""
        return any(
            (isinstance(part, ast.Attribute) and self.is_weight(part.attr))
            or (isinstance(part, ast.Name) and self.is_weight(part.id))
            for part in islice(ast.walk(node), _NODES)
        )

    def list_made(self, found: SyntaxParts) -> Iterator[ast.expr]:
        """Yield the expressions that become a weight or bias, or that a layer takes as one."""
        for target, value in found.targets:
            if value is not None and self.mentions(target):
                yield value
        for call in found.calls:
            match call:
                case ast.Call(
                    func=ast.Attribute(attr="register_buffer"),
                    args=[ast.Constant(value=str() as name), value, *_],
                ) if self.is_weight(name):
                    yield value
                case ast.Call(func=ast.Attribute(attr="copy_", value=target), args=[value, *_]) if (
                    self.mentions(target)
                ):
                    yield value
                case ast.Call(func=ast.Attribute(attr=method), args=args) if method in _LAYERS:
                    # The other argument is the layer's input, which may have had a bias added.
                    yield from args[::2] if method.endswith("addmm") else args[1:]
                case _:
                    pass

    def has_copied_transpose(self, calls: list[ast.Call]) -> bool:
        """Return whether a transposed weight is copied into rows of its own."""
        for call in calls:
            match call.func:
                case ast.Attribute(
                    attr="contiguous",
                    value=ast.Call(func=ast.Attribute(attr=method, value=inner))
                    | ast.Attribute(attr=method, value=inner),
                ) if method in _TRANSPOSE and self.mentions(inner):
                    return True
                case _:
                    pass
        return False


def _strip_reshape(node: ast.expr) -> tuple[ast.expr, bool]:
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _RESHAPE:
            return value, True
        case ast.Subscript(value=value, slice=ast.Tuple()):
            return value, True
        case _:
            return node, False


_USED = {
    "caching": split_names("lru_cache cache", "functools."),
    "cuda_graphs": split_names(
        "CUDAGraph graph make_graphed_callables", "torch.cuda.", "torch.cuda.graphs."
    ),
    "cudnn_flags": split_names("set_float32_matmul_precision backends.cudnn.flags", "torch."),
    "torch_compile": split_names("compile _dynamo.optimize", "torch."),
    "torch_jit": split_names(
        "script trace freeze trace_module script_method optimize_for_inference script_if_tracing",
        "torch.jit.",
    ),
}
"""Names whose use is a technique."""
_STREAMS = split_names(
    "Stream stream ExternalStream StreamContext set_stream", "torch.cuda.", "torch.cuda.streams."
) | split_names("Stream ExternalStream", "cupy.cuda.")
_FLAGS = ("torch.backends.cudnn.", "torch.backends.cuda.matmul.", "torch.backends.fp32_precision")
_LOW_PRECISION = split_names(
    "float16 half bfloat16 float8_e4m3fn float8_e5m2", "torch.", "triton.language."
)
_CHANNELS_LAST = split_names("channels_last channels_last_3d", "torch.")
_SIZES = frozenset(("min", "max", "next_power_of_2"))
"""Functions that choose the size of a block by the size of the problem."""
_FUSED_CALLS = split_names("addcmul addcdiv scaled_dot_product_attention")
# Methods with a trailing underscore that make or annotate a tensor, rather than compute in place.
_NOT_IN_PLACE = split_names(
    "requires_grad_ fill_ zero_ copy_ uniform_ normal_ trunc_normal_ kaiming_uniform_ "
    "kaiming_normal_ xavier_uniform_ xavier_normal_ orthogonal_ constant_ zeros_ ones_ "
    "share_memory_ _init_weights_"
)


@dataclass(kw_only=True)
class PythonFacts:
    """Facts of one Python text."""

    parsed: bool = False
    triton_kernels: int = 0
    uses_streams: bool = False
    techniques: set[str] = field(default_factory=set[str])
    strings: list[str] = field(default_factory=list[str])
    """Strings that take part in the program; docstrings and bare strings do not."""
    prose: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Byte ranges of docstrings and bare strings in the UTF-8 text."""


def read_python(code: str) -> PythonFacts:
    """Return the facts of Python text; never raises for any text.

    >>> read_python("import torch\\nf = torch.compile(g)").techniques
    {'torch_compile'}
    >>> read_python("# torch.compile(g)").techniques
    set()
    """
    tree = parse_python(code)
    if tree is None:
        return PythonFacts()
    found = collect_syntax(tree, code)
    facts = PythonFacts(parsed=True, strings=found.strings, prose=found.prose)
    # Nobody times the gradients.
    backward = _collect_ids(found, "backward")
    found.calls = [node for node in found.calls if id(node) not in backward]
    found.targets = [pair for pair in found.targets if id(pair[0]) not in backward]
    names = Names(found.imports)
    for call in found.calls:
        _read_call(facts, names, call)
    for function in found.functions:
        decorators = [
            names.resolve(node.func if isinstance(node, ast.Call) else node)
            for node in function.decorator_list
        ]
        for name in decorators:
            _read_used(facts, name)
        if TRITON.kernel_decorators.intersection(decorators):
            facts.triton_kernels += 1
        if "fuse" in function.name.lower():
            facts.techniques.add("fusion")
    constructed = _collect_ids(found, "__init__")
    for target, value in found.targets:
        # What an assignment sets: flags of libraries, layouts, sizes of blocks, caches.
        if value is not None and names.resolve(value) in _CHANNELS_LAST:
            facts.techniques.add("memory_layout")
        for part in _flatten(target):
            held = part.value if isinstance(part, ast.Subscript) else part
            name = names.resolve(held)
            words = name.rpartition(".")[2].lower()
            if (
                isinstance(value, ast.Call)
                and ("block" in words or "thread" in words)
                and names.resolve(value.func).rpartition(".")[2] in _SIZES
            ):
                facts.techniques.add("block_configuration")
            if not isinstance(held, ast.Attribute):
                continue
            if name.startswith(_FLAGS):
                facts.techniques.add("cudnn_flags")
                if "tf32" in held.attr and value is not None and _is_constant(value, True):
                    facts.techniques.add("reduced_precision")
            elif id(target) not in constructed and not {"cache", "cached"}.isdisjoint(
                words.split("_")
            ):
                facts.techniques.add("caching")
    weights = Weights(found)
    # A layer takes over what another one does: the square root of a batch norm's variance, or
    # arithmetic on a weight or bias that becomes another one or goes into a layer.
    called = [names.resolve(call.func) for call in found.calls]
    if (
        (
            found.reads_variance
            and any(
                name.endswith((".sqrt", ".rsqrt")) and not name.startswith("math.")
                for name in called
            )
        )
        or any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, _ARITHMETIC)
            and weights.mentions(part)
            for value in weights.list_made(found)
            for part in ast.walk(value)
        )
        or any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("mul_", "div_")
            and not isinstance(call.func.value, ast.Call)
            and weights.mentions(call.func.value)
            for call in found.calls
        )
    ):
        facts.techniques |= {"algebraic_rewrite", "fusion"}
    # A layer is computed in another way: weights are summed, averaged or flipped, or two inputs of
    # `forward` are multiplied after one of them is reshaped.
    for call, name in zip(found.calls, called, strict=True):
        if name.rpartition(".")[2] in ("sum", "mean", "flip"):
            operands = [*call.args[:1]]
            if isinstance(call.func, ast.Attribute):
                operands.append(call.func.value)
            if any(map(weights.mentions, operands)):
                facts.techniques.add("algebraic_rewrite")
    inputs = {
        argument.arg
        for function in found.functions
        if function.name == "forward"
        for argument in function.args.args[1:]
    }
    for product in found.products:
        sides = [_strip_reshape(side) for side in (product.left, product.right)]
        factors = {side.id for side, _ in sides if isinstance(side, ast.Name)} & inputs
        if len(factors) == 2 and any(reshaped for _, reshaped in sides):
            facts.techniques.add("algebraic_rewrite")
    if weights.has_copied_transpose(found.calls):
        facts.techniques.add("memory_layout")
    for node in found.keyed:
        keys = [node.slice] if isinstance(node, ast.Subscript) else [node.left, *node.comparators]
        if any(map(_is_address, keys)):
            facts.techniques.add("caching")
    builds = any(constant_answers.is_constructor(names.resolve(call.func)) for call in found.calls)
    if builds and any(
        constant_answers.has_constant_answer(node, names.resolve) for node in found.classes
    ):
        facts.techniques.add("short_circuit")
    return facts


def _collect_ids(found: SyntaxParts, name: str) -> set[int]:
    functions = [function for function in found.functions if function.name == name]
    return {id(node) for function in functions for node in ast.walk(function)}


def _read_call(facts: PythonFacts, names: Names, call: ast.Call) -> None:
    name = names.resolve(call.func)
    _read_used(facts, name)
    method = name.rpartition(".")[2]
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    given = {names.resolve(value) for value in values}
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    is_off = any(
        keyword.arg == "enabled" and _is_constant(keyword.value, False) for keyword in call.keywords
    )
    for keyword in call.keywords:
        if keyword.arg == "out" or (keyword.arg == "inplace" and _is_constant(keyword.value, True)):
            facts.techniques.add("in_place")
        elif keyword.arg in ("num_warps", "num_stages"):
            facts.techniques.add("block_configuration")
        elif keyword.arg == "non_blocking" and _is_constant(keyword.value, True):
            facts.techniques.add("async_execution")
    if name == "setattr" and call.args and f"{names.resolve(call.args[0])}.".startswith(_FLAGS):
        facts.techniques.add("cudnn_flags")
    if given & _CHANNELS_LAST or method == "as_strided":
        facts.techniques.add("memory_layout")
    if (
        given & _LOW_PRECISION
        or (method in ("half", "bfloat16") and not call.args)
        or (method == "autocast" and name.startswith("torch.") and not is_off)
        or (name == "torch.set_float32_matmul_precision" and first != "highest")
    ):
        facts.techniques.add("reduced_precision")
    if method in _FUSED_CALLS or ("fuse" in method.lower() and not name.startswith("self.")):
        facts.techniques.add("fusion")
    if (
        method.endswith("_")
        and not method.endswith("__")
        and method not in _NOT_IN_PLACE
        and "nn.init." not in name
        and not name.startswith("_")
    ):
        facts.techniques.add("in_place")
    if name in ("triton.language.dot", "triton.language.dot_scaled"):
        facts.techniques.add("tensor_cores")
    elif name == "triton.language.static_range":
        facts.techniques.add("unrolling")
    elif name in ("triton.autotune", "triton.heuristics", "triton.Config"):
        facts.techniques.add("block_configuration")
    if method in ("get", "setdefault", "pop") and any(map(_is_address, call.args)):
        facts.techniques.add("caching")


def _read_used(facts: PythonFacts, name: str) -> None:
    facts.techniques.update(one for one, known in _USED.items() if name in known)
    if name in _STREAMS:
        facts.uses_streams = True
        facts.techniques.add("async_execution")


def _flatten(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _flatten(item)
    else:
        yield target


def _is_constant(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_address(node: ast.expr) -> bool:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(
        isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr == "data_ptr"
        for item in items
    )
