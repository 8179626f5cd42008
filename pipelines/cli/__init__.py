"""The `pipelines` command, and one pipeline described for the terminal."""
