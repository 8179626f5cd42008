"""Datasets to train on: recorded ones by folder or name, or new ones from a pipeline."""
