"""Builds of candidates: kept ones, failed ones, and compiling without a GPU."""
