"""Leave-one-out: a column again without each of its memories in turn."""
