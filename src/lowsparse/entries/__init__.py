"""The entries of a partly observed matrix: the contract for data, `ObservedMatrix`, and every format it is made of."""
