"""What the pages have in common: the view's state, reading results, and elements that look the same everywhere."""
