"""Store the kernels that agents submit as attempts, and judge them."""
