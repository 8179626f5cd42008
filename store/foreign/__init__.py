"""Data from elsewhere, which nobody vouches for."""
