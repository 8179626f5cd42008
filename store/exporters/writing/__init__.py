"""What exporters share: running one, choosing attempts, writing tables."""
