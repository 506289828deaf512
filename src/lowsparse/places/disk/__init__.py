"""Matrices on disk in the layout of the compiled core, gone through in pieces."""
