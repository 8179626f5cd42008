"""The device that kernels run on: fingerprint, limits, lock, cache flush, load of its host."""
