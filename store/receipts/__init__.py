"""Receipts of a kernel's numbers: everything that they are computed from, in one file."""
