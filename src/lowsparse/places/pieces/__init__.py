"""Matrices in pieces, wherever these are: formulas of their entries, and the sweep that merges what pieces give."""
