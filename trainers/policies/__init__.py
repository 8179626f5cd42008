"""What writes kernels: local models, endpoints and scripts behind one interface."""
