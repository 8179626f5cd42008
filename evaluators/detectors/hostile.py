"""Attacks other processes: kills them, traces them, reads or writes their memory and descriptors.

A kernel with a hit of confidence 1 is refused before it runs, because no kernel needs this.
"""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Called, Hit, Module, Source, split_names

VERSION = 2
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
            target = call.args[0] if call.args else None
            own = isinstance(target, ast.Call) and module.name(target.func) in _OWN_PROCESS
            yield module.hit(call, 0.5 if own else REFUSED)
        last = name.rpartition(".")[2]
        attacks = "." in name and last in _ATTACKS and last not in module.functions
        if attacks or (name in _WRITES and _is_foreign(module, (*call.args, None)[0])):
            yield module.hit(call, REFUSED)
    for module in source.modules:
        for node in module.all(ast.Constant, ast.JoinedStr):
            # The path of a process's memory or descriptors under /proc.
            text = module.string(node) or ""
            steps = text.split("/")
            is_path = text.startswith("/proc/") and "\n" not in text
            if is_path and len(steps) > 3 and steps[3] in {"mem", "fd", "environ"}:
                yield module.hit(node, REFUSED)
    for native in source.native:
        for call in native.calls:
            if not native.is_own(call) and _is_attack(call):
                yield native.hit(call.line, REFUSED)


def _is_foreign(module: Module, node: ast.expr | None) -> bool:
    """Say whether a descriptor is a guessed number: neither opened here nor stdout or stderr."""

    def is_guess(node: ast.expr | None) -> bool:
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int) and node.value > 2
        return isinstance(node, ast.Call) and module.name(node.func) == "int"

    if not isinstance(node, ast.Name):
        return isinstance(node, ast.Constant) and is_guess(node)
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
    return any(map(is_guess, bound))


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
