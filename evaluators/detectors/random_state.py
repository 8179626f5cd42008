"""Seeds or replaces random generators, from which a harness draws its inputs."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_GENERATORS = split_names(
    "rand randn randint rand_like randn_like randperm normal bernoulli manual_seed seed "
    "initial_seed get_rng_state set_rng_state Generator default_generator",
    "torch.", "torch.random.", "torch.cuda.", "torch.cuda.random.",
)  # fmt: skip
_SEEDS = (
    split_names("manual_seed seed set_rng_state", "torch.", "torch.random.", "torch.cuda.")
    | split_names("manual_seed_all seed_all set_rng_state_all", "torch.cuda.")
    | {"numpy.random.seed", "random.seed", "torch.random.fork_rng", "numpy.random.set_state"}
)


def is_generator(name: str) -> bool:
    """Say whether a full name is a source of random numbers."""
    return name in _GENERATORS or name.startswith(("random.", "numpy.random."))


def find(source: Source) -> Iterator[Hit]:
    """Yield seeding, with more confidence inside a call of the model, and replaced generators."""
    yield from source.find_calls(_SEEDS, 0.3, hot=0.8)
    for module, node, name in source.find_patches():
        if is_generator(name):
            yield module.hit(node, 0.9)
