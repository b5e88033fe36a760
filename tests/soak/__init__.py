"""Faults by the thousand: a provider that fails by a seed, processes that are killed, stores that are taken away, and
afterwards the provider's own log of answers against what the store holds."""
