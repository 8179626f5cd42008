"""What generated tasks and their kernels are written with."""
