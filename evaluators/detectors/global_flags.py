"""Sets switches of the whole process: default types, TF32, threads, backends, environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.audit.hits import Hit
from evaluators.audit.source import Source

VERSION = 1
CLASS = "global_flags"
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
            yield module.hit(call, _CALLS[name])
        elif name == "setattr" and f"{module.name((*call.args, None)[0])}.".startswith(_BACKENDS):
            yield module.hit(call, 0.3)
    for module in source.modules:
        for target, _, _ in module.assigned:
            name = module.name(target)
            if isinstance(target, ast.Attribute) and name.startswith(_BACKENDS):
                precise = "tf32" in target.attr or "precision" in target.attr
                yield module.hit(target, 0.3 if precise or "reduced" in target.attr else 0.1)
            elif isinstance(target, ast.Subscript) and module.name(target.value) == "os.environ":
                yield module.hit(target, 0.2)
