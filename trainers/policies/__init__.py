"""Policies, which write kernels: local models, endpoints and scripts behind one interface."""
