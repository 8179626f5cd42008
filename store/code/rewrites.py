"""Finds algebraic rewrites in Python: work on weights ahead of a layer, products by broadcast."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import islice

from store.code.python_syntax import Names, SyntaxParts

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_LAYERS = frozenset(("linear", "mm", "bmm", "matmul", "addmm", "baddbmm")) | {
    f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)
}
_NODES = 200
"""Nodes of an expression that are read: each part of a chain of calls asks for the whole chain."""
_RESHAPE = frozenset(("unsqueeze", "view", "reshape"))
_TRANSPOSE = frozenset(("t", "transpose", "permute", "swapaxes"))


def folds_layers(found: SyntaxParts, names: Names, weights: Weights) -> bool:
    """Return whether a layer takes over what another one does: scales, constants, a batch norm.

    That is arithmetic on a weight or bias that becomes another one or goes into a layer, or the
    square root of a batch norm's variance.
    """
    if found.reads_variance and any(
        name.endswith((".sqrt", ".rsqrt")) and not name.startswith("math.")
        for name in (names.resolve(call.func) for call in found.calls)
    ):
        return True
    return any(
        isinstance(part, ast.BinOp) and isinstance(part.op, _ARITHMETIC) and weights.mentions(part)
        for value in weights.list_made(found)
        for part in ast.walk(value)
    ) or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("mul_", "div_")
        and not isinstance(call.func.value, ast.Call)
        and weights.mentions(call.func.value)
        for call in found.calls
    )


def rewrites_layers(found: SyntaxParts, names: Names, weights: Weights) -> bool:
    """Return whether a layer is computed in another way.

    Weights are summed, averaged or flipped, or two inputs of `forward` are multiplied after one of
    them is reshaped.
    """
    for call in found.calls:
        if names.resolve(call.func).rpartition(".")[2] in ("sum", "mean", "flip"):
            operands = [*call.args[:1]]
            if isinstance(call.func, ast.Attribute):
                operands.append(call.func.value)
            if any(map(weights.mentions, operands)):
                return True
    inputs = {
        argument.arg
        for function in found.functions
        if function.name == "forward"
        for argument in function.args.args[1:]
    }
    return any(_is_broadcast(product, inputs) for product in found.products)


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
                    attr="contiguous", value=ast.Call(func=ast.Attribute(attr=method, value=inner))
                ) if method in _TRANSPOSE and self.mentions(inner):
                    return True
                case ast.Attribute(
                    attr="contiguous", value=ast.Attribute(attr="T", value=inner)
                ) if self.mentions(inner):
                    return True
                case _:
                    pass
        return False


def _is_broadcast(product: ast.BinOp, inputs: set[str]) -> bool:
    sides = [_strip_reshape(side) for side in (product.left, product.right)]
    factors = {side.id for side, _ in sides if isinstance(side, ast.Name)} & inputs
    return len(factors) == 2 and any(reshaped for _, reshaped in sides)


def _strip_reshape(node: ast.expr) -> tuple[ast.expr, bool]:
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _RESHAPE:
            return value, True
        case ast.Subscript(value=value, slice=ast.Tuple()):
            return value, True
        case _:
            return node, False
