"""Judge processes whose answers a test gives: `told_judges.py evaluators serve …` runs the command.

Each judge sends its case to the test over a socket (`judge_services.ToldJudges`) and waits for its
answer, which then passes the checks of every judge process.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import builders as b
import one_thread

ADDRESS = "FLYWHEEL_TESTS_JUDGES"
"""Variable of the environment with the port on which the test listens."""


def use_told_judges() -> None:
    """Let the judge service start judges that ask the test."""
    from evaluators.scheduling.judges import process
    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.service import judging
    from store.errors import HostUnfit, SandboxFailed

    class ToldJudge(JudgeProcess):
        arch, toolchain = None, ""

        def __init__(
            self, evaluator: str, device: str, config: Any, *cores: Sequence[int] | None
        ) -> None:
            module = judging.contract.load(evaluator)
            self._evaluator, self._version = judging.contract.name_of(module), module.VERSION
            self._sick = None
            self.row = b.device() | {"created_at": "2026-01-01T00:00:00+00:00"}

        def wait_ready(self) -> None: ...
        def give_up(self) -> None: ...
        def restart(self) -> None: ...
        def close(self) -> None: ...

        def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
            place = ("127.0.0.1", int(os.environ[ADDRESS]))
            with socket.create_connection(place) as connection:
                stream = connection.makefile("rw", encoding="utf-8")
                stream.write(json.dumps(message) + "\n")
                stream.flush()
                answer = json.loads(stream.readline() or "{}")
            if "unfit" in answer:
                raise HostUnfit(answer["unfit"])
            if "lost" in answer:
                raise SandboxFailed(answer["lost"])
            return answer

    process.JudgeProcess = ToldJudge
    judging.SICK_S = 0.5  # a device that was sick is tried again soon


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    sys.argv = sys.argv[1:]
    one_thread.use_one_thread()
    use_told_judges()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
