"""What robust fits are made of: regression by random subsets, growth from dense blocks, joint steps in both factors."""
