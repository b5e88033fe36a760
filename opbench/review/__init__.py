"""People's review of questions: two responses side by side, two reviewers an item, adjudication (paper, A.3)."""
