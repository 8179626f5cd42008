"""Policies on this machine: a Hugging Face model, sampled in left-padded batches by all ranks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from store.ids import content_id
from store.lake.host import choose_cache
from trainers.models import loading
from trainers.policies.interface import Asked, Completion, Sampling, Serving
from trainers.runs import processes

log = logging.getLogger(__name__)

_SEEDS = 1 << 31
LEG = 128
"""Number of tokens after which ended sequences are removed from the batch."""


class Local:
    """A model folder, a Hub name or a GGUF file; loaded when the first prompt comes."""

    def __init__(self, model: str, serving: Serving) -> None:
        """Find the model.

        Raises FlywheelError: there is no such model.
        """
        self._serving = serving
        self._folder = loading.find_model(model, choose_cache("models"))
        self._name = model.rstrip("/").split("/")[-1].removesuffix(".gguf")
        self._row: dict[str, Any] = {}
        self._model: Any = None
        self._tokenizer: Any = None
        self._ends: list[int] = []
        self._turns: Any = None

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`: its id follows from the weights, as that of a checkpoint does."""
        # Ranks that only sample need no row, and the weights may take minutes to read.
        if not self._row:
            identity = loading.identify_model(self._folder)
            self._row = {
                "policy_id": identity.policy_id,
                "name": self._name,
                "kind": "model",
                "model": f"{self._folder.parent.name}/{self._folder.name}",
                "weights_sha256": identity.weights_sha256,
                "output_terms": self._serving.terms,
            }
        return self._row

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        """Yield each prompt's n completions, prompts of similar length together.

        Of the model's own generation settings, only the end tokens apply; `Sampling` determines
        everything else. The same seeds, prompts and batch give the same completions on the same
        device. All prompts are drawn with one generator. If they have different seeds, that of the
        generator is a hash of them.
        """
        import torch

        self._load()
        n, sampling, seeds = asked.n, asked.sampling, asked.seeds
        distinct = [sampling.seed] if seeds is None else sorted(set(seeds))
        seed = distinct[0]
        if len(distinct) > 1:
            seed = int(content_id("seeds", *map(str, distinct))[:16], 16) % _SEEDS
        if seed is None:
            torch.seed()  # every process would begin with the same draws
        else:
            torch.manual_seed(seed)
        texts: list[list[int]] = [
            self._tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
            for messages in asked.prompts
        ]
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        each = max(self._serving.batch // n, 1)
        for start in range(0, len(order), each):
            group = order[start : start + each]
            made = self._sample_batch([texts[index] for index in group], n, sampling)
            yield from zip(group, made, strict=True)

    def close(self) -> None:
        """Release the model and its memory on the device."""
        import torch

        if self._turns is not None:
            self._turns.close()
        self._model = self._tokenizer = self._turns = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _load(self) -> None:
        import torch
        from transformers import GenerationConfig

        from trainers.runs.gpu_turns import GpuTurns, open_lock

        if self._model is not None:
            return
        loading.hide_progress_bars()
        device = self._serving.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = "float32" if device == "cpu" else "bfloat16"
        log.debug("loading %s on %s as %s", self._folder, device, dtype)
        self._turns = GpuTurns(device, open_lock(device))
        self._tokenizer = loading.load_tokenizer(self._folder)
        loaded: Any = loading.load_model(self._folder, dtype=dtype)
        self._model = loaded.to(device).eval()
        self._turns.watch(self._model)
        given = self._model.generation_config.eos_token_id
        listed = given if isinstance(given, list) else [given]
        ends = {one for one in (*listed, self._tokenizer.eos_token_id) if one is not None}
        self._ends = sorted(ends)
        # Transformers takes settings that a call does not set from here: penalties, top_k and
        # others.
        self._model.generation_config = GenerationConfig()

    def _sample_batch(
        self, prompts: list[list[int]], n: int, sampling: Sampling
    ) -> list[list[Completion]]:
        """Return n completions of each prompt; a batch that is too large is halved."""
        import torch

        longest = max(map(len, prompts))
        context = int(getattr(self._model.config, "max_position_embeddings", None) or 1 << 20)
        room = context - longest
        if room < 1:
            if len(prompts) > 1:
                return [made for one in prompts for made in self._sample_batch([one], n, sampling)]
            why = f"a prompt of {longest} tokens leaves no room in a context of {context}"
            return [[Completion.fail(why, longest)]]
        if len(prompts) > 1 or n <= self._serving.batch:
            try:
                with self._turns.sharing():
                    return self._batch(prompts, n, sampling, min(sampling.max_tokens, room))
            except torch.OutOfMemoryError:
                if len(prompts) == 1 and n == 1:
                    return [[Completion.fail(f"out of memory with {longest} tokens", longest)]]
            torch.cuda.empty_cache()
            log.info("out of memory with %d sequences: halved", len(prompts) * n)
        if len(prompts) > 1:
            half = len(prompts) // 2
            parts = (prompts[:half], prompts[half:])
            return [made for part in parts for made in self._sample_batch(part, n, sampling)]
        first = self._sample_batch(prompts, n // 2, sampling)[0]
        return [first + self._sample_batch(prompts, n - n // 2, sampling)[0]]

    def _batch(
        self, prompts: list[list[int]], n: int, sampling: Sampling, most: int
    ) -> list[list[Completion]]:
        import torch
        from transformers import GenerationConfig

        pad: int = self._tokenizer.pad_token_id
        longest = max(map(len, prompts))
        copies = n if sampling.temperature > 0 else 1
        asked = [one for one in prompts for _ in range(copies)]
        device = self._model.device
        # Left-padded, so that every prompt ends where its completion begins.
        ids = torch.tensor([[pad] * (longest - len(one)) + one for one in asked], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(one)) + [1] * len(one) for one in asked], device=device
        )
        settings: dict[str, Any] = {
            "pad_token_id": pad,
            "eos_token_id": self._ends,
            "do_sample": sampling.temperature > 0,
            "return_dict_in_generate": True,
        }
        if sampling.temperature > 0:
            settings |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        rows: list[list[int]] = [[] for _ in asked]
        ends = set(self._ends)
        left, cache = list(range(len(rows))), None
        with torch.inference_mode():
            while left and len(rows[left[0]]) < most:
                leg = min(LEG, most - len(rows[left[0]]))
                made = self._model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    past_key_values=cache,
                    generation_config=GenerationConfig(max_new_tokens=leg, **settings),
                )
                new = made.sequences[:, ids.shape[1] :].tolist()
                for row, tokens in zip(left, new, strict=True):
                    rows[row] += tokens
                goes_on = [place for place, row in enumerate(left) if ends.isdisjoint(rows[row])]
                left = [left[place] for place in goes_on]
                kept = torch.tensor(goes_on, dtype=torch.long, device=device)
                ids, cache = made.sequences[kept], made.past_key_values
                mask = torch.nn.functional.pad(
                    mask[kept], (0, ids.shape[1] - mask.shape[1]), value=1
                )
                cache.batch_select_indices(kept)
        if sampling.temperature == 0:
            rows = [row for row in rows for _ in range(n)]
        sampled: list[list[Completion]] = [[] for _ in prompts]
        for place, row in enumerate(rows):
            end = next((at for at, token in enumerate(row) if token in ends), None)
            sampled[place // n].append(
                Completion(
                    text=self._tokenizer.decode(row[:end], skip_special_tokens=True),
                    finish_reason="length" if end is None else "stop",
                    prompt_tokens=len(prompts[place // n]),
                    completion_tokens=len(row) if end is None else end + 1,
                )
            )
        return sampled


class Spread:
    """A policy that all ranks of a training run sample: rank 0 asks, each answers its share.

    rank 0: rollout ─▶ Spread.sample ─▶ request ─┬─▶ own share ──┬─▶ answers in order ─▶ rows
    rank k:            serve ◀──────────────────┴─▶ their share ┘

    The other ranks run `serve` until the context ends.
    """

    def __init__(self, folder: Path, serving: Serving) -> None:
        self._local = Local(str(folder), serving)
        self._each = max(serving.batch, 1)

    def __enter__(self) -> Spread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if processes.count_processes() > 1:
            _broadcast(None)

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`."""
        return self._local.row

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        """Yield each prompt's n completions, a batch of every rank at a time.

        Raises FlywheelError: a rank could not sample its share.
        """
        if processes.count_processes() == 1:
            yield from self._local.sample(asked)
            return
        size = max(self._each // asked.n, 1) * processes.count_processes()
        for place, start in enumerate(range(0, len(asked.prompts), size)):
            share = _move(_select(asked, slice(start, start + size)), place)
            _broadcast(share)
            for index, made in _answer_share(self._local, share):
                yield start + index, made

    def close(self) -> None:
        """Release the model; later sampling loads it again."""
        self._local.close()


def serve(folder: Path, serving: Serving) -> None:
    """Answer requests of rank 0 until it stops."""
    local = Local(str(folder), serving)
    while (asked := _broadcast(None)) is not None:
        _answer_share(local, asked)
    local.close()


def _answer_share(local: Local, asked: Asked) -> list[tuple[int, list[Completion]]]:
    """Sample this rank's share of the prompts, and return those of all ranks."""
    from accelerate.utils import gather_object

    rank, ranks = processes.read_rank(), processes.count_processes()
    own = _move(_select(asked, slice(rank, None, ranks)), rank)
    try:
        sampled = local.sample(own) if own.prompts else ()
        answers: list[Any] = [(rank + index * ranks, made) for index, made in sampled]
    except Exception as error:
        answers = [FlywheelError(f"rank {rank} could not sample: {error}")]
    of_all_ranks: list[Any] = gather_object(answers)
    for answer in of_all_ranks:
        if isinstance(answer, FlywheelError):
            raise answer
    return of_all_ranks


def _select(asked: Asked, places: slice) -> Asked:
    seeds = None if asked.seeds is None else asked.seeds[places]
    return replace(asked, prompts=asked.prompts[places], seeds=seeds)


def _move(asked: Asked, by: int) -> Asked:
    """Return seeds that differ by rank and batch, so that no two draw the same."""
    first, *moved = [
        None if seed is None else (seed * 1_000_003 + by) % _SEEDS
        for seed in (asked.sampling.seed, *(asked.seeds or ()))
    ]
    seeds = None if asked.seeds is None else [seed for seed in moved if seed is not None]
    return replace(asked, sampling=replace(asked.sampling, seed=first), seeds=seeds)


def _broadcast(request: Any) -> Any:
    from accelerate.utils import broadcast_object_list

    box = [request]
    broadcast_object_list(box)
    return box[0]
