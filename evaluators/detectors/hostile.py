"""Attacks other processes: kills them, traces them, reads or writes their memory and descriptors.

A kernel with a hit of confidence 1 is refused before it runs, because no kernel needs this.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.audit.source import Called, Hit, Module, Source, split_names

VERSION = 2
CLASS = "hostile"
REFUSED = 1.0
_SIGNALS = frozenset(("os.kill", "os.killpg", "signal.pidfd_send_signal", "signal.pthread_kill"))
_ATTACKS = split_names(
    "ptrace process_vm_readv process_vm_writev pidfd_getfd pidfd_open memfd_secret"
)
_WRITES = split_names("write writev pwrite pwritev sendfile dup2 fdopen splice", "os.") | {
    "socket.fromfd",
    "socket.send_fds",
}
_OWN = split_names("open pipe pipe2 memfd_create openpty dup", "os.") | split_names(
    "mkstemp", "tempfile."
)
_SENDS_SIGNALS = split_names("kill killpg tgkill tkill pidfd_send_signal sigqueue")
_NATIVE_WRITES = split_names("write pwrite dup2 dup3 send sendmsg")
_OWN_PROCESS = frozenset(("os.getpid", "getpid"))


def find(source: Source) -> Iterator[Hit]:
    """Yield attacks; one on the process itself is only a crash and is not refused."""
    for module, call, name in source.calls:
        if name in _SIGNALS:
            yield module.hit(call, 0.5 if _is_own_process(module, call) else REFUSED)
        last = name.rpartition(".")[2]
        attacks = "." in name and last in _ATTACKS and last not in module.functions
        if attacks or (name in _WRITES and _is_foreign(module, (*call.args, None)[0])):
            yield module.hit(call, REFUSED)
    for module in source.modules:
        for node in module.all(ast.Constant, ast.JoinedStr):
            if _names_memory(module, node):
                yield module.hit(node, REFUSED)
    for native in source.native:
        for call in native.calls:
            if not native.is_own(call) and _is_attack(call):
                yield native.hit(call.line, REFUSED)


def _is_own_process(module: Module, call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Call) and module.name(first.func) in _OWN_PROCESS


def _is_foreign(module: Module, node: ast.expr | None) -> bool:
    """Say whether a descriptor is a guessed number: neither opened here nor stdout or stderr."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and node.value > 2
    if not isinstance(node, ast.Name):
        return False
    bound = [
        value
        for target, value, _ in module.assigned
        if isinstance(target, ast.Name) and target.id == node.id
    ]
    looped = any(
        isinstance(part, ast.Name) and part.id == node.id
        for loop in module.all(ast.For, ast.comprehension)
        for part in ast.walk(loop.target)
    )
    if looped:
        return True
    if any(isinstance(value, ast.Call) and module.name(value.func) in _OWN for value in bound):
        return False
    return any(_is_guess(module, value) for value in bound)


def _is_guess(module: Module, node: ast.expr | None) -> bool:
    """Say whether a descriptor is a number, or parsed from a text."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and node.value > 2
    return isinstance(node, ast.Call) and module.name(node.func) == "int"


def _names_memory(module: Module, node: ast.Constant | ast.JoinedStr) -> bool:
    """Say whether a string is the path of a process's memory or descriptors under /proc."""
    if node in module.prose or isinstance(module.parents.get(node), ast.JoinedStr):
        return False
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "0" for part in node.values]
        text = "".join(map(str, parts))
    elif isinstance(node.value, str):
        text = node.value
    else:
        return False
    if not text.startswith("/proc/") or "\n" in text:
        return False
    steps = text.split("/")
    return len(steps) > 3 and steps[3] in {"mem", "fd", "environ"}


def _is_attack(call: Called) -> bool:
    if call.scope not in (None, "", "std"):  # of another library's namespace
        return False
    if call.name in _ATTACKS:
        return True
    first = call.arguments[0] if call.arguments else ""
    if call.name == "syscall":
        return first.removeprefix("SYS_").removeprefix("__NR_") in _ATTACKS | _SENDS_SIGNALS
    if call.name in {"dlsym", "dlvsym"}:
        return any(text.strip('"') in _ATTACKS | _SENDS_SIGNALS for text in call.arguments[1:])
    if call.name in _SENDS_SIGNALS:
        return first not in {"getpid()", "::getpid()"}
    return call.name in _NATIVE_WRITES and first.isdigit() and int(first) > 2
