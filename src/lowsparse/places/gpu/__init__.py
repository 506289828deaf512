"""Matrices on a GPU, or passing through it in pieces; the sweep there, and its kernels."""
