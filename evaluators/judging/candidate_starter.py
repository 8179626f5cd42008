"""Starting the worker of a candidate, on a GPU while the judge still prepares its inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from evaluators.judging.case import Policy
from evaluators.judging.worker_setup import WorkerSetup
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.worker.builds.cache import Builds
from evaluators.worker.handle import Deadlines, Sizes, StartedWorker, WorkerHandle
from store.errors import SandboxFailed


class CandidateStarter:
    """Starts candidates one after the other, each in a fork of one warm process."""

    def __init__(self, setup: WorkerSetup, builds: Builds | None) -> None:
        self._setup = setup
        self._builds = builds
        self._environment: dict[str, str] = {}
        self._expected: tuple[Mapping[str, str], StartedWorker] | None = None
        self.server = ForkServer(setup.template)
        """The process that forks them."""

    def close(self) -> None:
        """End every process."""
        with contextlib.suppress(SandboxFailed):  # its server ends what is left of it
            self.end_expected()
        self.server.close()

    def restart(self, environment: Mapping[str, str]) -> None:
        """Fork from a new process with these variables."""
        self.server.close()
        self._environment = dict(environment)
        self.server = ForkServer(self._setup.template, self._environment)

    def expect(self, files: Mapping[str, str], task: tuple[str, str], limits: Limits) -> None:
        """Begin to start a candidate that `start` will prepare. Raises SandboxFailed.

        Its process gets a GPU, which takes half a second, while the reference answers its first
        question. On a processor nothing is gained, and nothing is started.
        """
        self.end_expected()
        if self._setup.device == "cuda":
            self._expected = files, self._fork(files, task, None, limits)

    def end_expected(self) -> None:
        """End a process that `start` has not taken. Raises SandboxFailed."""
        expected, self._expected = self._expected, None
        if expected is not None:
            expected[1].end()

    def start(
        self,
        files: Mapping[str, str],
        task: tuple[str, str],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        policy: Policy | None = None,
    ) -> WorkerHandle:
        """Start a worker with the flags of a policy, or of the present one.

        Args:
            files: The candidate's files.
            task: Code and axes of its task.
            sizes: Memory that it shares with the judge.
            limits: Its limits.
            deadlines: Its deadlines.
            policy: Policy other than the present one.

        Raises:
            SandboxFailed: it cannot be started.
        """
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == files and policy is None:
            started = expected[1]
        else:
            if expected is not None:
                expected[1].end()
            started = self._fork(files, task, sizes, limits, policy)
        return self._setup.prepare(started, sizes, deadlines, trusted=False)

    def _fork(
        self,
        files: Mapping[str, str],
        task: tuple[str, str],
        sizes: Sizes | None,
        limits: Limits,
        policy: Policy | None = None,
    ) -> StartedWorker:
        if not self.server.is_alive:
            self.restart(self._environment)
        build = None if self._builds is None else self._builds.claim(files, *task)
        return self._setup.start(self.server, files, limits, sizes, build, policy)
