"""The losses, a file for each paper: the formula, the function, the module."""
