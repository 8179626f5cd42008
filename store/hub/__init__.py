"""Editions of a lake on the Hugging Face Hub: publish and pull."""
