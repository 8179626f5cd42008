"""What a pipeline is asked, what it returns, and what its renderer sees of one row."""
