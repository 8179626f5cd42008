"""The judge's clock on a GPU, which the code under test cannot reach."""
