"""Winners: the kernels that other programs load, as packages that choose and guard them."""
