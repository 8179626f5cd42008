"""Trainers: what learns from datasets of the lake and appends what it tried as rows."""
