"""The judge's clock on a GPU, out of reach of the code under test."""
