"""The device that kernels run on: its fingerprint, limits and lock, and load on its host."""
