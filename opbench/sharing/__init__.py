"""Results as files that go elsewhere: a view as one HTML page, a study in the public evaluator's own JSON."""
