"""What stands between the command line, which holds the lake, and the processes that judge."""
