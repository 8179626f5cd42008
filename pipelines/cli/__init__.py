"""The `pipelines` command."""
