"""Making a benchmark of OP-Bench's kind from conversations (paper, sections 3.1 to 3.3, appendix A.1 to A.3)."""
