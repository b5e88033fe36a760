"""What of an entry's further fields is a key, and what determines answers."""

from __future__ import annotations

import pytest

from opbench.models.secrets import without_keys


@pytest.mark.parametrize(
    "field",
    [
        {"api_key": "short"},
        {"key": "0123456789abcdef"},
        {"openai_key": "k-0123456789abcdef"},
        {"nested": [{"Authorization": "Bearer abc"}]},
        {"note": "use sk-0123456789abcdefgh here"},
        {"header": "Bearer 0123456789abcdef"},
    ],
)
def test_a_key_is_left_out(field: dict[str, object]) -> None:
    kept = repr(without_keys(field))
    assert "[key]" in kept
    assert not any(secret in kept for secret in ("short", "0123456789", "abc'"))


@pytest.mark.parametrize(
    "field", [{"key": "C major"}, {"sort_key": "date"}, {"adapter": "hf-adapter-v1"}, {"top_k": 5}]
)
def test_what_is_none_tells_two_models_apart(field: dict[str, object]) -> None:
    assert without_keys(field) == field
