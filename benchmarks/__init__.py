"""Benchmarks: everything compared runs in the same run, and ratios are printed."""
