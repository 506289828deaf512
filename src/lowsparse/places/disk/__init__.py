"""Matrices on disk in the layout of the compiled core, read in pieces."""
