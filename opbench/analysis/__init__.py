"""From a run's frames to tables in points (0 to 100), and the paper's published figures beside them."""
