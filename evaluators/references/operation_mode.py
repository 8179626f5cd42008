"""The base of modes that see every operation of a call."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):
    """A dispatch mode without torch's guard against compiling it, which imports the compiler.

    That takes seconds in every new process. The calls that these modes see are not compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
