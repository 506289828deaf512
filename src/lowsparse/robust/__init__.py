"""Building blocks of robust fits: regression on a subspace, random subsets, dense blocks, Gauss-Newton steps."""
