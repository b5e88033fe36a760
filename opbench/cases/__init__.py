"""Live cases: one question through several configurations side by side, taken apart, changed, kept and passed on."""
