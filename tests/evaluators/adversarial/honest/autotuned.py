# Times its variants in the first call for a shape and keeps the fastest, as an autotuner does.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import time

import torch


def by_columns(x, w):
    return torch.relu(x @ w)


def by_halves(x, w):
    half = x.shape[1] // 2
    return torch.relu(x[:, :half] @ w[:half] + x[:, half:] @ w[half:])


def by_linear(x, w):
    return torch.nn.functional.linear(x, w.t()).clamp_(min=0)


class Autotuner:
    """Times every variant in the first call for a shape, and keeps the fastest, as Triton's does."""

    def __init__(self, variants):
        self.variants = variants
        self.cache = {}
        self.best_config = None

    def bench(self, variant, *args):
        variant(*args)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            variant(*args)
            times.append(time.perf_counter() - begin)
        return min(times)

    def __call__(self, *args):
        key = tuple(arg.shape for arg in args)
        if key not in self.cache:
            timings = {variant: self.bench(variant, *args) for variant in self.variants}
            self.cache[key] = min(timings, key=timings.get)
        self.best_config = self.cache[key]
        return self.best_config(*args)


matmul = Autotuner([by_columns, by_halves, by_linear])


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return matmul(x, self.weight)
