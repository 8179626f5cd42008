"""What exporters share: running an exporter, selecting attempts, writing tables."""
