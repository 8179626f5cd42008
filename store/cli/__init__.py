"""The `store` command."""
