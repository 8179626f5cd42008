"""Files beside the lake with the rows of views; safe to delete."""
