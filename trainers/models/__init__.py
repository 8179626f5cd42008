"""Models on this machine: found, identified and loaded, and a tiny one for trials."""
