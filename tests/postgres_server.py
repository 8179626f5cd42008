"""A PostgreSQL server on loopback for tests, started and ended as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BINARIES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin")
OWNER = "flywheel"


def find_binary(name: str) -> str | None:
    """Return the path of one of PostgreSQL's programs, which Debian keeps out of PATH."""
    found = shutil.which(name)
    if found is not None:
        return found
    folders = [folder for pattern in BINARIES for folder in Path("/").glob(pattern[1:])]
    return next((str(one / name) for one in sorted(folders) if (one / name).exists()), None)


class PostgresServer:
    """One server with its files in a private folder; `restart` and `end` may be called at will."""

    def __init__(self, *, is_durable: bool = False) -> None:
        """Start a server; a durable one syncs to disk, as servers do that are not for tests."""
        self._folder = Path(tempfile.mkdtemp(prefix="flywheel-postgres-", dir="/tmp"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        data = str(self._folder / "data")
        self._run("initdb", ["-D", data, "-A", "trust", "-U", OWNER, "--no-sync"])
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder}"
        settings += "" if is_durable else " -c fsync=off"
        self._control = [
            "-D",
            data,
            "-w",
            "-t",
            "300",
            "-o",
            settings,
            "-l",
            str(self._folder / "log"),
        ]
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._run("pg_ctl", ["start", *self._control])

    def restart(self) -> None:
        """End every session at once and start again."""
        self._run("pg_ctl", ["restart", "-m", "immediate", *self._control])

    def require_tls(self) -> Path:
        """Refuse connections without TLS from now on; return the certificate to trust.

        The certificate is self-signed and names 127.0.0.1.
        """
        certificate, key = self._folder / "server.crt", self._folder / "server.key"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True, **self._user)
        key.chmod(0o600)
        data = self._folder / "data"
        with open(data / "postgresql.conf", "a") as settings:
            settings.write(f"ssl = on\nssl_cert_file = '{certificate}'\n")
            settings.write(f"ssl_key_file = '{key}'\n")
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        self.restart()
        trusted = Path(tempfile.mkdtemp(prefix="flywheel-tls-", dir="/tmp")) / "root.crt"
        shutil.copyfile(certificate, trusted)
        return trusted

    def end(self) -> None:
        """End the server and remove its files."""
        self._run("pg_ctl", ["stop", "-m", "immediate", *self._control])
        shutil.rmtree(self._folder, ignore_errors=True)

    def build_url(self, schema: str, data: Path | str) -> str:
        """Return the URL of a lake on this server."""
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/postgres?schema={schema}&data={data}"

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        program = find_binary(name)
        assert program is not None
        # Not captured by pipes: the server would inherit them and keep them open.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd="/",
                check=False,
                **self._user,
            )
            said.seek(0)
            assert done.returncode == 0, said.read().decode()
