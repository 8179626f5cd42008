"""The status and reason of every failure of a worker."""

import re
import signal
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from evaluators.processes.messages import make_readable
from evaluators.sandbox.launcher import Ended

Stage: TypeAlias = Literal["load", "construct", "first_call", "call"]

_BUILD_ERRORS = {"CalledProcessError", "CompilationError", "CompileTimeAssertionFailure"}
_BUILD_TEXTS = ("Error building extension", "Error compiling", "Kernel compilation failed", "nvrtc")
_COMPLAINTS = ("error: ", "error : ", "fatal ", "Killed", "No space left")
"""Parts of the lines in which compilers and linkers say what is wrong."""
_MOST_OF_COMMAND = 100
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in (.+)$', re.MULTILINE)
_LIBRARIES = ("site-packages/", "/lib/python3", "/evaluators/", "<frozen ")
"""Parts of the paths of frames that are not of the kernel's own files."""
_MEMORY_ERRORS = {"OutOfMemoryError", "MemoryError"}
_MEMORY_TEXTS = (
    "can't allocate memory",
    "out of memory",
    "not enough memory",
    "STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # its handle takes memory
    # When torch lacks memory, it asks NVML who holds it, and no worker can reach NVML.
    "nvmlInit_v2_() INTERNAL ASSERT",
)


class Failed(Exception):
    """A worker failed at a request, with a status and a reason."""

    def __init__(self, status: str, reason: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.detail = detail


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or the one that caused it, says that memory could not be allocated."""
    if isinstance(error, Failed):
        return error.reason == "out_of_memory"
    if type(error).__name__ in _MEMORY_ERRORS or any(part in str(error) for part in _MEMORY_TEXTS):
        return True
    return error.__cause__ is not None and lacks_memory(error.__cause__)


def explain_timeout(stage: Stage, limit_s: float, build_s: float, compiling: bool) -> Failed:
    """Return the failure of a worker that missed its deadline."""
    if compiling:
        message = f"still building after {build_s:g} s"
        return Failed("timeout", "build_timeout", message)
    if stage in ("load", "construct"):
        what = "imported" if stage == "load" else "constructed"
        return Failed("timeout", "import_timeout", f"not {what} after {limit_s:g} s")
    return Failed("timeout", "call_timeout", f"no answer to a call after {limit_s:g} s")


def explain_end(ended: Ended) -> Failed:
    """Return the failure of a worker that ended instead of answering."""
    if ended.excess:
        reason = "out_of_memory" if "memory" in ended.excess else "signal"
        return Failed("crash", reason, f"ended for using too much: {ended.excess}")
    if ended.code == -signal.SIGXCPU:
        return Failed("timeout", "total_timeout", "used up its processor time")
    if ended.code < 0:
        try:
            name = signal.Signals(-ended.code).name
        except ValueError:
            name = f"signal {-ended.code}"
        return Failed("crash", "signal", f"ended by {name}")
    message = f"left with exit code {ended.code} before it had answered"
    return Failed("crash", "early_exit", message)


def explain_error(stage: Stage, error: Mapping[str, Any]) -> Failed:
    """Return the failure of a worker that reported an exception."""
    types, text, name = set(error["types"]), make_readable(error["text"]), error["type"]
    lines = text.strip().splitlines() or [""]
    message = f"{make_readable(name)}: {lines[0]}"
    complaints = (line for line in lines[1:] if any(part in line for part in _COMPLAINTS))
    if complaint := next(complaints, None):
        message = f"{message[:_MOST_OF_COMMAND]} … {complaint}"
    detail = make_readable(error["trace"])
    own = [  # lines of the traceback that are in files of the kernel's own, the innermost last
        f"{path.rpartition('/')[2]}, line {line}, in {function}: "
        for path, line, function in _FRAME.findall(detail)
        if not any(part in path for part in _LIBRARIES)
    ]
    message = "".join([*own[-1:], message])[:500]
    if types & _MEMORY_ERRORS or any(part in text for part in _MEMORY_TEXTS):
        return Failed("crash", "out_of_memory", message, detail)
    if types & _BUILD_ERRORS or any(part in text for part in _BUILD_TEXTS):
        return Failed("compile_error", "build_failed", message, detail)
    if stage == "load":
        reason = "syntax_error" if "SyntaxError" in types else "import_failed"
        return Failed("compile_error", reason, message, detail)
    if stage == "construct":
        return Failed("compile_error", "init_failed", message, detail)
    return Failed("crash", "exception", message, detail)
