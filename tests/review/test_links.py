"""Personal links and sign-ins: told once, kept as a digest, void when somebody leaves."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from opbench.errors import UsageError
from opbench.review.links import by_secret, by_sign_in, invite, leave, link_path, renew
from opbench.store import schema as s
from opbench.store.database import Store
from opbench.store.reviews import find_reviewer, reviewers_of
from tests.review.made import make_review


def test_a_links_secret_has_256_bits_and_isnt_in_the_store(lite: Store) -> None:
    review = make_review(lite)
    made = invite(lite, review, " Ann \n Lee ")
    assert made.secret is not None
    # 32 bytes in base64 without padding.
    assert len(made.secret) == 43
    assert made.secret not in repr(made)
    assert made.reviewer.name == "Ann Lee"
    with lite.begin() as connection:
        (row,) = connection.execute(select(s.reviewers)).all()
    assert made.secret not in str(row)
    assert len(row.link_sha256) == 64
    found = by_secret(lite, made.secret)
    assert found == made.reviewer
    assert link_path(made.secret).startswith("/review#")


@pytest.mark.parametrize("secret", ["", "x" * 43, "é" * 43, "x" * 10_000, "' OR 1=1 --"])
def test_other_secrets_open_nothing(lite: Store, secret: str) -> None:
    invite(lite, make_review(lite), "ann")
    assert by_secret(lite, secret) is None


def test_a_name_fits_a_table(lite: Store) -> None:
    review = make_review(lite)
    assert invite(lite, review, "a" * 80).reviewer.name == "a" * 80
    with pytest.raises(UsageError, match="at most 80 signs"):
        invite(lite, review, "b" * 81)


def test_leaving_and_a_new_link_make_the_old_one_void(lite: Store) -> None:
    review = make_review(lite)
    made = invite(lite, review, "ann")
    assert made.secret is not None
    second = renew(lite, made.reviewer.id)
    assert second is not None
    assert by_secret(lite, made.secret) is None
    leave(lite, made.reviewer.id)
    assert by_secret(lite, second) is None
    third = renew(lite, made.reviewer.id)
    assert third is not None
    back = by_secret(lite, third)
    assert back is not None
    assert (back.id, back.left_at) == (made.reviewer.id, None)


def test_by_sign_in(lite: Store) -> None:
    review = make_review(lite)
    made = invite(lite, review, "Ann", sign_in="ann@example.org")
    assert made.secret is None
    assert [each.id for each in by_sign_in(lite, "ann@example.org")] == [made.reviewer.id]
    assert by_sign_in(lite, "bob@example.org") == []
    assert by_sign_in(lite, "") == []
    leave(lite, made.reviewer.id)
    assert by_sign_in(lite, "ann@example.org") == []
    assert renew(lite, made.reviewer.id) is None
    assert len(by_sign_in(lite, "ann@example.org")) == 1


def test_a_name_and_a_sign_in_are_there_once(lite: Store) -> None:
    review = make_review(lite)
    invite(lite, review, "Ann", sign_in="ann@example.org")
    with pytest.raises(UsageError, match="Ann takes part already"):
        invite(lite, review, "Ann")
    with pytest.raises(UsageError, match="Ann takes part already"):
        invite(lite, review, "Bea", sign_in="ann@example.org")
    invite(lite, review, "Bob")
    invite(lite, review, "Cat")
    leave(lite, find_reviewer(lite, review, "Bob").id)
    with pytest.raises(UsageError, match="Bob left"):
        invite(lite, review, "Bob")
    with pytest.raises(UsageError, match="needs a name"):
        invite(lite, review, "  ")
    with pytest.raises(UsageError, match="no review"):
        invite(lite, "nowhere", "Dan")
    assert [each.name for each in reviewers_of(lite, review)] == ["Ann", "Bob", "Cat"]
    with pytest.raises(UsageError, match="no reviewer 'Dan'"):
        find_reviewer(lite, review, "Dan")
