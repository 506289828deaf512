"""Matrices in pieces: formulas of their entries, and the sweep that merges the results of pieces."""
