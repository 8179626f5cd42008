"""Replays a CUDA graph without copying the inputs of the call into it."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Module, Source, is_identity, reads_any

VERSION = 4
CLASS = "stale_graph"


def find(source: Source) -> Iterator[Hit]:
    """Yield replays, with more confidence if the same function copies no input."""
    for module in source.modules:
        answering = module.find_answering()
        for call, name in module.calls:
            owner = module.owner(call)
            if name.rpartition(".")[2] != "replay" or owner is None or not module.is_hot(call):
                continue
            names = module.find_derived(owner)
            copied = any(
                isinstance(one.func, ast.Attribute)
                and one.func.attr in {"copy_", "set_", "_foreach_copy_"}
                and any(reads_any(value, names) for value in one.args)
                for one in module.inside(owner, ast.Call)
            ) or any(
                isinstance(target, ast.Subscript) and reads_any(node.value, names)
                for node in module.inside(owner, ast.Assign)
                for target in node.targets
            )
            # A graph that was captured for the tensors of this call reads them in their own memory.
            same = any(
                (isinstance(node, ast.Attribute) and node.attr == "data_ptr") or is_identity(node)
                for node in module.inside(owner, ast.Attribute, ast.Compare)
            ) or _is_matched(module, owner, call)
            # A helper without arguments replays buffers that its caller has filled.
            sure = 0.2 if copied or not module.inputs(owner) else 0.7
            yield module.hit(call, 0.4 if sure > 0.4 and (same or owner not in answering) else sure)
    for native in source.native:
        yield from native.hits(frozenset(("cudaGraphLaunch",)), 0.3)


def _is_matched(module: Module, owner: ast.AST, replay: ast.Call) -> bool:
    """Say whether a helper makes a key of addresses, or captures the graph in the same call."""
    graph = replay.func.value if isinstance(replay.func, ast.Attribute) else None
    for call in module.inside(owner, ast.Call):
        for helper in module.functions.get(module.name(call.func).rpartition(".")[2], []):
            answers = [node.value for node in module.find_returns(helper)]
            parts = [part for answer in answers if answer for part in ast.walk(answer)]
            if any(getattr(part, "attr", None) == "data_ptr" for part in parts):
                return True
            new = {
                target.id
                for target, value, node in module.assigned
                if isinstance(target, ast.Name)
                and module.owner(node) is helper
                and isinstance(value, ast.Call)
                and module.name(value.func).endswith("CUDAGraph")
            }
            kept = module.parents.get(call)
            if (
                new
                and graph is not None
                and all(isinstance(answer, ast.Name) and answer.id in new for answer in answers)
                and isinstance(kept, ast.Assign)
                and ast.unparse(graph) in map(ast.unparse, kept.targets)
            ):
                return True
    return False
