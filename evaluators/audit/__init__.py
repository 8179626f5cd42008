"""Search stored kernels for cheats: sweeps of the detectors, a language model as a checker."""
