"""Linear algebra: arrays of the processor and of a GPU, the Grassmann manifold, low-rank matrices, robust scales."""
