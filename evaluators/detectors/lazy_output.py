"""Returns an object that is not a plain tensor and computes when it is read."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_BASES = split_names(
    "Tensor FloatTensor cuda.FloatTensor _C.TensorBase _C._TensorBase", "torch."
) | split_names("Parameter Buffer parameter.Parameter UninitializedParameter", "torch.nn.")
_METHODS = split_names("__torch_function__ __torch_dispatch__")
_MAKERS = split_names("_make_subclass _make_wrapper_subclass as_subclass")
_HONEST = split_names("requires_grad grad data names retain_grad")


def find(source: Source) -> Iterator[Hit]:
    """Yield tensor subclasses, overridden dispatch, swapped classes, attributes set on tensors."""
    for module in source.modules:
        for model in module.all(ast.ClassDef):
            if _BASES & {module.name(base) for base in model.bases}:
                yield module.hit(model, 0.9)
        for name in sorted(_METHODS):
            for function in module.functions.get(name, []):
                yield module.hit(function, 0.9)
        for call, name in module.calls:
            texts = {module.text(value) for value in call.args}
            swaps = name.endswith(("setattr", "__setattr__")) and "__class__" in texts
            if swaps or name.rpartition(".")[2] in _MAKERS:
                yield module.hit(call, 0.9)
        for target, _, _ in module.assigned:
            if not isinstance(target, ast.Attribute):
                continue
            if target.attr == "__class__":
                # The model itself is not an answer.
                yield module.hit(target, 0.4 if module.name(target.value) == "self" else 0.9)
            elif (
                isinstance(target.value, ast.Name)
                and target.value.id not in {"self", "cls", "ctx"}
                and module.name(target).split(".")[0] not in module.imported
                and target.attr not in _HONEST
                and module.is_hot(target)
            ):
                yield module.hit(target, 0.4)
