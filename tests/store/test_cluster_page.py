"""docs/cluster.md: its roles let writers write and readers read, and its backup restores."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import builders
import psycopg
import pytest
from postgres_server import PostgresServer, find_binary

import store
from store.errors import LakeUnreachable
from store.lake.location import Location
from store.upkeep import integrity

PAGE = (Path(store.__file__).parents[1] / "docs" / "cluster.md").read_text("utf-8")
ROLES, SALT = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def run_sql(server: PostgresServer, text: str, database: str = "postgres") -> None:
    """Run statements as the administrator."""
    target = f"host=127.0.0.1 port={server.port} user=flywheel dbname={database}"
    with psycopg.connect(target, autocommit=True) as session:
        session.execute(text.encode())


@pytest.mark.slow
def test_roles_and_backup_are_as_the_page_says(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "alice"))
    run_sql(server, ROLES)
    start = f"127.0.0.1:{server.port}"
    alice = f"postgresql://alice@{start}/postgres?schema=lake&data={tmp_path / 'data'}"
    with store.writer(alice, author="alice") as writer:
        writer.append({"policies": [builders.policy("one")]}, "one")
    run_sql(server, SALT)

    # A reader on another host reads all rows, and cannot write or see the salt.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "bob"))
    bob = f"postgresql://bob@{start}/postgres?schema=lake"
    with store.open(bob) as lake:
        assert lake.sql("SELECT name FROM policies").rows() == [{"name": "one"}]
    with pytest.raises(LakeUnreachable, match=r"cluster\.md"):
        store.writer(bob, author="bob")
    with (
        psycopg.connect(f"host=127.0.0.1 port={server.port} user=bob dbname=postgres") as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        session.execute("SELECT salt FROM lake.flywheel_lake")

    # A second writer continues, and the dump of the catalog opens as the same lake.
    run_sql(server, "CREATE ROLE carol LOGIN; GRANT lake_owner TO carol")
    run_sql(server, "ALTER ROLE carol SET role = 'lake_owner'")
    carol = alice.replace("alice@", "carol@")
    with store.writer(carol, author="carol") as writer:
        writer.append({"policies": [builders.policy("two")]}, "two")
    for name in ("pg_dump", "pg_restore"):
        database = "postgres" if name == "pg_dump" else "restored"
        target = f"host=127.0.0.1 port={server.port} dbname={database} user=flywheel"
        if name == "pg_restore":
            run_sql(server, "CREATE DATABASE restored")
        [line] = re.findall(rf"^{name} (.*) '.*'|^{name} --dbname='.*' (.*)$", PAGE, re.MULTILINE)
        words = [one.replace("'", "") for one in "".join(line).split()]
        program = find_binary(name)
        assert program is not None
        end = [target] if name == "pg_dump" else [f"--dbname={target}"]
        done = subprocess.run(
            [program, *end, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"PGPASSWORD": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    restored = carol.replace("/postgres?", "/restored?")
    with store.open(restored) as lake:
        names = lake.sql("SELECT name FROM policies ORDER BY name").rows()
    assert names == [{"name": "one"}, {"name": "two"}]
    assert integrity.check(Location.of(restored)) == []


@pytest.mark.slow
def test_tls_is_required_and_the_server_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_binary("initdb") is None or shutil.which("openssl") is None:
        pytest.skip("PostgreSQL or openssl is not installed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    server = PostgresServer()
    try:
        trusted = server.require_tls()
        url = server.build_url("lake", tmp_path / "data")
        verified = f"{url}&sslmode=verify-full&sslrootcert={trusted}"
        with store.writer(verified, author="tests") as writer:
            writer.append({"policies": [builders.policy("one")]}, "one")
        with store.open(verified) as lake:
            assert lake.sql("SELECT name FROM policies").rows() == [{"name": "one"}]
        with pytest.raises(LakeUnreachable, match=r"no pg_hba\.conf entry"):
            store.open(f"{url}&sslmode=disable")
        with pytest.raises(LakeUnreachable, match="certificate"):
            store.open(f"{url}&sslmode=verify-full&sslrootcert=system")
        elsewhere = verified.replace("127.0.0.1", "localhost")
        with pytest.raises(LakeUnreachable, match="does not match"):
            store.open(elsewhere)
    finally:
        server.end()
