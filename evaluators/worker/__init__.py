"""What runs inside a worker process, beside the candidate."""
