"""Rewards of RL frameworks from a judge service; docs/frameworks says how.

The modules here import no framework: what a framework calls is a function of plain values.
"""
