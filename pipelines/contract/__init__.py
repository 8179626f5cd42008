"""The contract of a pipeline: its request, its selection, and the rows that its renderer gets."""
