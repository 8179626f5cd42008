"""From a selection to a dataset: rendered rows, Parquet shards, card, and rows of the lake."""
