"""Sets switches of the whole process: default types, TF32, threads, backends, environment."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Module, Source

VERSION = 2
_CALLS = {
    "torch.set_default_dtype": 0.7,
    "torch.set_default_tensor_type": 0.7,
    "torch.set_default_device": 0.5,
    "torch.set_num_threads": 0.5,
    "torch.set_num_interop_threads": 0.5,
    "torch.set_float32_matmul_precision": 0.3,
    "torch.set_flush_denormal": 0.5,
    "torch.use_deterministic_algorithms": 0.3,
    "torch.cuda.set_device": 0.2,
    "torch.cuda.set_per_process_memory_fraction": 0.5,
    "torch.cuda.set_sync_debug_mode": 0.5,
    "torch.set_grad_enabled": 0.1,
    "os.putenv": 0.4,
    "os.environ.update": 0.3,
    "os.environ.setdefault": 0.1,
}
_BACKENDS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.")


def find(source: Source) -> Iterator[Hit]:
    """Yield each switch, with low confidence if it only chooses an algorithm."""
    for module, call, name in source.calls:
        if name in _CALLS:
            lowers = name == "torch.set_float32_matmul_precision" and (
                module.text(call.args[0] if call.args else None) in {"high", "medium"}
            )
            yield module.hit(call, 0.6 if lowers and _is_passing(module, call) else _CALLS[name])
        elif name == "setattr" and f"{module.name((*call.args, None)[0])}.".startswith(_BACKENDS):
            yield module.hit(call, 0.3)
    for module in source.modules:
        for target, value, _ in module.assigned:
            name = module.name(target)
            if isinstance(target, ast.Attribute) and name.startswith(_BACKENDS):
                precise = "tf32" in target.attr or "precision" in target.attr
                sure = 0.3 if precise or "reduced" in target.attr else 0.1
                lowers = isinstance(value, ast.Constant) and value.value is True and sure == 0.3
                yield module.hit(target, 0.6 if lowers and _is_passing(module, target) else sure)
            elif isinstance(target, ast.Subscript) and module.name(target.value) == "os.environ":
                yield module.hit(target, 0.2)


def _is_passing(module: Module, node: ast.AST) -> bool:
    """Say whether a function lowers the precision of its own products alone, and restores it."""
    owner = module.owner(node)
    if owner is None or owner.name == "__init__":
        return False
    called = [call.func for call in module.inside(owner, ast.Call)]
    written = [target for target, _, _ in module.assigned if module.owner(target) is owner]
    names = [module.name(node) for node in (*called, *written)]
    return any(names.count(name) > 1 for name in names if "tf32" in name or "precision" in name)
