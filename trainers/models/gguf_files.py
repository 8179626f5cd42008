"""GGUF files as plain models: unpacked once into bf16 safetensors that can be trained and saved."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from trainers.models import loading
from trainers.models.whole_folder import write_once

log = logging.getLogger(__name__)

_ORIGIN = "gguf.json"


def unpack_gguf(file: Path, target: Path) -> Path:
    """Return a folder with the model of a GGUF file, unpacked into bf16; made where it is missing.

    Args:
        file: The GGUF file.
        target: Folder to make. If it contains the model of another file, a folder beside it is
            used, named by the file's hash.

    Raises:
        FlywheelError: no such file, or Transformers cannot read it.
    """
    if not file.is_file():
        raise FlywheelError(f"no file {file}", "Name a .gguf file.")
    with open(file, "rb") as handle:
        magic = handle.read(4)
        handle.seek(0)
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if magic != b"GGUF":
        raise FlywheelError(f"{file} is no GGUF file", "It has to begin with the letters GGUF.")
    if target.exists() and _read_origin(target) != digest:
        target = target.with_name(f"{target.name}-{digest[:12]}")

    def write(folder: Path) -> None:
        log.info("unpacking %s into %s", file.name, target)
        _convert(file, folder)
        (folder / _ORIGIN).write_text(json.dumps({"name": file.name, "sha256": digest}))

    write_once(target, write, lambda folder: _read_origin(folder) is not None)
    if _read_origin(target) != digest:
        raise FlywheelError(
            f"{target} was made of another file than {file} meanwhile", "Run the command again."
        )
    return target


def _convert(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    loading.hide_progress_bars()
    # Loaded without this, the model counts as quantised: it cannot be saved, and may stay packed.
    plain = GgufConfig(dequantize=True)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.bfloat16,
            quantization_config=plain,
            local_files_only=True,
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(
            str(file.parent), gguf_file=file.name, local_files_only=True
        )
    except (ValueError, KeyError, OSError, NotImplementedError, ImportError) as error:
        raise FlywheelError(
            f"{file} cannot be read as a model: {str(error)[:300]}",
            "Transformers reads the GGUF files of common architectures; convert others elsewhere.",
        ) from error
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def _read_origin(folder: Path) -> str | None:
    """Return the sha256 of the GGUF file that a folder was made of, or None."""
    file = folder / _ORIGIN
    return json.loads(file.read_text())["sha256"] if file.is_file() else None
