"""Pure functions from a table of `opbench.analysis` to a Plotly figure, used by pages and by exports alike."""
