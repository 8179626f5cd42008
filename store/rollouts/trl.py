"""Rollouts of TRL's GRPOTrainer, with tokens, log-probs and advantages as its loss gets them.

Trainers and tensors are used by their methods alone, so this imports neither torch nor TRL.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import store
from store.errors import UsageError
from store.rollouts.run import OnError, Run

PLACE = "rollout_place"
"""Tensor that follows each attempt through TRL's shuffling and splitting into micro-batches."""
_LOGPROBS = {
    "sampler_logprobs": "sampling_per_token_logps",
    "old_logprobs": "old_per_token_logps",
    "ref_logprobs": "ref_per_token_logps",
}


def attach(
    trainer: Any,
    name: str | None = None,
    *,
    lake: str | None = None,
    config: Mapping[str, Any] | None = None,
    license: str | None = None,
    on_error: OnError = "warn",
) -> None:
    """Log rollouts and metrics of a GRPOTrainer of TRL while it trains (`store.run`).

        trainer = GRPOTrainer(model, reward_funcs=[...], args=args, train_dataset=rows)
        store.attach(trainer, lake="lake")
        trainer.train()

    Reward functions stay as they are: each is a term of the reward. A column `task` of the dataset
    is the task. Every process of a training attaches.

    Args:
        trainer: A GRPOTrainer before `train`.
        name: Name of the run; None means run_name or the folder of the trainer's arguments.
        lake: Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake.
        config: Options of the run; None means the trainer's arguments.
        license: License of the rollouts.
        on_error: "raise" ends the training if a rollout breaks a rule or the disk is full.
    """
    if not hasattr(trainer, "_generate_and_score_completions"):
        raise UsageError(
            f"store.attach takes a GRPOTrainer of TRL, not {type(trainer).__name__}",
            "Log other trainings by store.run(…): log_rollouts([…]) and log({…}).",
        )
    if trainer.state.global_step:
        logging.getLogger(__name__).warning(
            "the %d steps that the trainer has made are not logged: attach it before train()",
            trainer.state.global_step,
        )
    train, log = trainer.train, trainer.log
    opened: list[Run] = []
    arguments = trainer.args.to_dict()
    if config is None:
        plain = (str, int, float, bool)
        config = {key: value for key, value in arguments.items() if isinstance(value, plain)}
    is_first = trainer.accelerator.process_index == 0
    named = name or arguments.get("run_name") or arguments["output_dir"].rstrip("/").split("/")[-1]

    def log_and_store(logs: dict[str, Any], *more: Any, **options: Any) -> None:
        log(logs, *more, **options)  # TRL adds its metrics to them
        if opened and is_first:
            numbers = {key: value for key, value in logs.items() if value is not None}
            opened[-1].log(numbers, step=int(trainer.state.global_step))

    def train_and_store(*more: Any, **options: Any) -> Any:
        with store.run(
            named,
            lake=lake,
            config=config if is_first else None,
            rank=trainer.accelerator.process_index,
            license=license,
            on_error=on_error,
        ) as run:
            opened.append(run)
            try:
                return train(*more, **options)
            finally:
                opened.clear()

    capture(trainer, lambda rollouts, _: opened and opened[-1].log_rollouts(rollouts))
    trainer.log, trainer.train = log_and_store, train_and_store


def hash_tokenizer(tokenizer: Any) -> str:
    """Return the sha256 of a tokenizer's vocabulary, which gives token ids a meaning."""
    vocabulary = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def capture(trainer: Any, keep: Callable[[list[dict[str, Any]], float], object]) -> None:
    """Have a trainer call `keep` with the rollouts of this process, once for each batch of them.

    A rollout is what `store.rollouts.rows` describes. The number is the seconds that reading them
    took. Two methods of the instance are wrapped: one returns the batch with advantages, the other
    divides it into micro-batches.
    """
    generate, prepare = trainer._generate_and_score_completions, trainer._prepare_inputs
    tokenizer = hash_tokenizer(trainer.processing_class)
    waiting: list[dict[str, Any]] = []
    batches: dict[int, int] = {}
    spent = 0.0

    def generate_and_read(inputs: Any) -> Any:
        nonlocal spent
        output = generate(inputs)
        if trainer.model.training:
            began = time.perf_counter()
            step = int(trainer.state.global_step)
            batch = batches[step] = batches.get(step, -1) + 1
            waiting[:] = read_rollouts(trainer, output, batch)
            for example, rollout in zip(inputs, waiting, strict=True):
                task = example.get("task")
                rollout |= {"tokenizer": tokenizer, "task": task if isinstance(task, str) else None}
            output[PLACE] = output["prompt_ids"].new_tensor(range(len(waiting)))
            spent = time.perf_counter() - began
        return output

    def prepare_and_keep(inputs: Any) -> Any:
        prepared = prepare(inputs)
        if waiting:
            passes = int(trainer.args.gradient_accumulation_steps)
            for number, batch in enumerate(trainer._buffered_inputs, trainer._step % passes):
                for place in batch[PLACE].tolist():
                    # A batch that serves several steps belongs to the first that trains on it.
                    waiting[place]["step"] += number // passes
                    waiting[place]["micro_batch"] = number % passes
            rollouts, waiting[:] = list(waiting), []
            keep(rollouts, spent)
        return prepared

    trainer._generate_and_score_completions = generate_and_read
    trainer._prepare_inputs = prepare_and_keep


def read_rollouts(trainer: Any, output: Any, batch: int = 0) -> list[dict[str, Any]]:
    """Return the rollouts of a batch in the order of its inputs, without padding.

    Args:
        trainer: A GRPOTrainer.
        output: The return value of its `_generate_and_score_completions`.
        batch: Number of batches that were sampled before in the same step.
    """
    padding = trainer.processing_class.pad_token_id
    ends = {*trainer.eos_token_ids, padding}
    sampling = {
        "temperature": trainer.temperature,
        "top_p": trainer.top_p,
        "top_k": trainer.top_k,
        "max_tokens": trainer.max_completion_length,
    }
    columns = {
        name: output[name].tolist()
        for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
    }
    tool_mask = output["tool_mask"].tolist() if "tool_mask" in output else None
    logprobs = {name: output[key].tolist() for name, key in _LOGPROBS.items() if key in output}
    size, step = len(columns["prompt_ids"]), int(trainer.state.global_step)
    rank, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    # The texts and rewards of all processes, in their order. TRL keeps those of the last batch.
    logs = {name: list(trainer._logs[name])[-ranks * size :] for name in ("prompt", "completion")}
    terms = {name: list(of)[-ranks * size :] for name, of in trainer._logs["rewards"].items()}
    rollouts: list[dict[str, Any]] = []
    for at in range(size):
        prompt = zip(columns["prompt_ids"][at], columns["prompt_mask"][at], strict=True)
        ids, mask = columns["completion_ids"][at], columns["completion_mask"][at]
        length = sum(mask)
        if not length:
            # mask_truncated_completions masks all of an answer whose last token is no padding.
            length = len(ids)
            while length and ids[length - 1] == padding:
                length -= 1
        loss_mask = [bool(value) for value in mask[:length]]
        if tool_mask is not None:
            own = zip(loss_mask, tool_mask[at], strict=False)
            loss_mask = [is_kept and bool(value) for is_kept, value in own]
        advantage = columns["advantages"][at]
        place = rank * size + at
        group, sample = divmod(place, int(trainer.num_generations))
        rewards = {name: values[place] for name, values in terms.items()}
        rollouts.append(
            {
                "prompt": logs["prompt"][place],
                "completion": logs["completion"][place],
                "prompt_ids": [token for token, is_kept in prompt if is_kept],
                "completion_ids": ids[:length],
                "token_ends": find_token_ends(
                    trainer.processing_class, ids[:length], logs["completion"][place]
                ),
                "loss_mask": None if all(loss_mask) else loss_mask,
                **{name: _keep_finite(values[at][:length]) for name, values in logprobs.items()},
                "advantage": _keep_finite(
                    advantage[:length] if isinstance(advantage, list) else advantage
                ),
                "reward": {name: value for name, value in rewards.items() if math.isfinite(value)},
                "group": f"{batch}-{group}",
                "sample": sample,
                "step": step,
                "policy_step": step,
                "rank": rank,
                "finish_reason": "stop" if ids[length - 1] in ends else "length",
                "sampling": sampling,
            }
        )
    return rollouts


def find_token_ends(tokenizer: Any, ids: Sequence[int], completion: Any) -> list[int] | None:
    """Return where each token ends in the text of a completion, in characters.

    None if the tokenizer cannot decode a stream, or the text is another one, as with tool calls.
    """
    text = completion if isinstance(completion, str) else completion[-1].get("content")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    from tokenizers.decoders import DecodeStream

    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(backend, token) or "" for token in ids]
    return list(itertools.accumulate(map(len, pieces))) if "".join(pieces) == text else None


def _keep_finite(values: Any) -> Any:
    """Return a number or a list of them; None if one is NaN or infinite, which is no value."""
    numbers: Sequence[float] = values if isinstance(values, list) else [values]
    return values if all(map(math.isfinite, numbers)) else None
