"""Models by folder, Hub name or GGUF file: found, identified, loaded, and a tiny one for trials."""

from __future__ import annotations

import functools
import json
import logging
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import store
from store.commandline.outputs import open_partial, rename_over
from store.errors import FlywheelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


log = logging.getLogger(__name__)

TINY = "tiny"
_ADAPTER = "adapter_config.json"
_WANTED = ["*.safetensors", "*.json", "*.model", "*.jinja", "*.txt"]
_VOCABULARY = 2048
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def find_model(model: str, scratch: Path, seed: int = 0) -> Path:
    """Return the local folder of a model.

    It is `tiny` (with weights of this seed), a folder, a .gguf file, or a name on the Hub (from the
    local cache if it is there). `tiny` and unpacked GGUF files are put into `scratch`. Raises
    FlywheelError: there is no such model, or it has only pickled weights.
    """
    if model == TINY:
        return write_once(scratch / f"tiny-{seed}", lambda folder: write_tiny_model(folder, seed))
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        return unpack_gguf(path, scratch)
    if path.is_dir():
        folder = path.resolve()
    elif path.exists() or model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise FlywheelError(
            f"no model at {model}", "Name a folder with config.json, a .gguf file or OWNER/NAME."
        )
    else:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        try:  # only data is fetched, never code
            folder = Path(snapshot_download(model, allow_patterns=_WANTED))
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            raise FlywheelError(
                f"no model {model}: {error}", "Name a folder where the Hub cannot be reached."
            ) from error
    if not any(list_weight_files(folder)):
        raise FlywheelError(
            f"{folder} holds no .safetensors file",
            "Pickled weights are not loaded: convert them with transformers' save_pretrained.",
        )
    return folder


def hide_progress_bars() -> None:
    """Hide the progress bars of transformers if stderr is not a terminal."""
    from transformers.utils import logging

    if not sys.stderr.isatty():
        logging.disable_progress_bar()


def list_weight_files(folder: Path) -> Iterator[Path]:
    """Yield the weight files of a model folder, by name."""
    yield from sorted(folder.glob("*.safetensors"))


def hash_weights(folder: Path) -> str:
    """Return the sha256 of the weights of a model folder; an adapter's includes its base's."""
    parts: list[str | None] = []
    for file in list_weight_files(folder):
        parts += [file.name, store.ids.hash_file(file)]
    base = find_base_folder(folder)
    if base is not None:
        parts += ["base", hash_weights(base) if base.is_dir() else str(base)]
    return store.ids.content_id("weights", *parts)


class Identity(NamedTuple):
    """What a local model is known by."""

    policy_id: str
    weights_sha256: str


def identify_model(folder: Path) -> Identity:
    """Return the id of a local model as a policy, and the hash of its weights, read once.

    The id follows from weights, tokenizer and template. The same files give the same id in any
    folder, so that a rollout finds the row that training appended.
    """
    weights = hash_weights(folder)
    texts = [folder / "tokenizer.json", folder / "chat_template.jinja"]
    shown = [store.ids.hash_file(file) for file in texts if file.exists()]
    return Identity(store.ids.content_id("policy", weights, *shown), weights)


def compute_policy_id(folder: Path) -> str:
    """Return the id of a local model as a policy (`identify_model`)."""
    return identify_model(folder).policy_id


def find_base_folder(folder: Path) -> Path | None:
    """Return the base model of an adapter's folder, or None for a whole model."""
    file = folder / _ADAPTER
    if not file.exists():
        return None
    return Path(json.loads(file.read_text("utf-8"))["base_model_name_or_path"])


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model folder, with a padding token.

    Raises FlywheelError: it has no chat template, which prompts need.
    """
    from transformers import AutoTokenizer

    base = find_base_folder(folder)
    own = (folder / "tokenizer_config.json").exists()
    made: Any = AutoTokenizer.from_pretrained(str(folder if own or base is None else base))
    if made.chat_template is None:
        raise FlywheelError(
            f"the tokenizer of {folder} has no chat template",
            "Take an instruct model, or put a chat_template.jinja into the folder.",
        )
    if made.pad_token is None:
        made.pad_token = made.eos_token
    return made


def load_model(folder: Path, *, lora: int | None = None, **given: Any) -> PreTrainedModel:
    """Return a model to train.

    The caller's `peft_config` (`adapter`) adds LoRA to a whole model. An adapter's folder continues
    with the same adapter if `lora` is set; otherwise the adapter is merged into its base. `given`
    goes to from_pretrained; the weights are float32 by default.

    Raises FlywheelError: an adapter of another rank than `lora`.
    """
    from transformers import AutoModelForCausalLM

    base = find_base_folder(folder)
    given = {"dtype": "float32"} | given | {"use_safetensors": True}
    made: Any = AutoModelForCausalLM.from_pretrained(str(base or folder), **given)
    if base is None:
        return made
    from peft import PeftModel

    rank = json.loads((folder / _ADAPTER).read_text("utf-8"))["r"]
    if lora is not None and lora != rank:
        raise FlywheelError(
            f"{folder} is an adapter of rank {rank}, not {lora}",
            f"Give --lora {rank} to go on with it, or no --lora to merge it into its base.",
        )
    adapted: Any = PeftModel.from_pretrained(made, str(folder), is_trainable=lora is not None)
    if lora is not None:
        return adapted
    return adapted.merge_and_unload().requires_grad_(True)  # peft has frozen the base


def make_adapter_config(folder: Path, lora: int | None) -> Any:
    """Return peft's configuration of a new adapter, or None for no new adapter."""
    if lora is None or find_base_folder(folder) is not None:
        return None
    if lora < 1:
        raise FlywheelError(f"--lora {lora} is no rank", "Give 1 or more.")
    from peft import LoraConfig

    return LoraConfig(
        r=lora,
        lora_alpha=2 * lora,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(folder),
    )


def choose_precision() -> dict[str, Any]:
    """Return the device's settings as arguments of TRL: bf16 if supported, or the processor.

    Weights stay in float32 and autocast uses bf16, so that small updates are not lost.
    """
    import torch

    if not torch.cuda.is_available():
        return {"use_cpu": True, "bf16": False}
    return {"use_cpu": False, "bf16": torch.cuda.is_bf16_supported(including_emulation=False)}


def write_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write a random Llama of about 3M parameters with its own tokenizer and return its folder.

    The tokenizer is byte-level BPE, trained on the reference tasks and kernels that ship with the
    store, so that every text is in its vocabulary and a prompt of 4 KB has about 1,000 tokens. The
    same seed gives the same bytes. Nothing is downloaded.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_train_tokenizer(),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        model_max_length=8192,
    )
    tokenizer.chat_template = _TEMPLATE
    ids: dict[str, Any] = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        **ids,
        initializer_range=1 / math.sqrt(256),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    model.save_pretrained(str(folder))
    return folder


@functools.cache
def _train_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made: Any = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer: Any = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<|im_start|>", "<|im_end|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    starter = Path(store.__file__).parent / "starter"
    texts = [file.read_text("utf-8") for file in sorted(starter.rglob("*.py"))]
    made.train_from_iterator(texts, trainer)
    return made


def unpack_gguf(file: Path, parent: Path) -> Path:
    """Return a folder with the model of a GGUF file, unpacked into bf16; made where it is missing.

    Its name has the hash of the file. Raises FlywheelError: no such file, or Transformers cannot
    read it.
    """
    if not file.is_file():
        raise FlywheelError(f"no file {file}", "Name a .gguf file.")
    with open(file, "rb") as handle:
        if handle.read(4) != b"GGUF":
            raise FlywheelError(f"{file} is no GGUF file", "It has to begin with the letters GGUF.")
    target = parent / f"{file.stem}-{store.ids.hash_file(file)[:12]}"

    def write(folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

        log.info("unpacking %s into %s", file.name, target)
        hide_progress_bars()
        # Loaded without this, the model counts as quantised: it cannot be saved, and may stay
        # packed.
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
                "Transformers reads the GGUF files of common architectures; convert others "
                "elsewhere.",
            ) from error
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))

    return write_once(target, write)


def is_whole_model(folder: Path) -> bool:
    """Whether a folder has a model's configuration and weights, which are written in this order."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def write_once(target: Path, write: Callable[[Path], object]) -> Path:
    """Return the folder of a model, written if it is missing or was written in part.

    `write` is called with the path of a folder to make, which takes the target's name when it is
    complete. Several processes may do this at once: the first one to finish is the one whose folder
    stays.
    """
    if is_whole_model(target):
        return target
    with open_partial(target.parent) as partial:
        folder = partial / target.name
        write(folder)
        try:
            folder.rename(target)
        except OSError:
            if not is_whole_model(target):
                rename_over(folder, target)
    return target
