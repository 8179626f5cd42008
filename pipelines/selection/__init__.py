"""Which rows a dataset holds: tasks, scores, draws, and the rules that every dataset keeps."""
