"""Sections 3 and 4 of the paper: losses, bounds, the model update, CCCP, the path of λ."""
