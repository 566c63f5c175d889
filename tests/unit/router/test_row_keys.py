"""Keys of rows: the same digests as the standard library's, since folders of earlier versions have them."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.router.rows import digest_of, row_key


@pytest.mark.parametrize("size", [0, 1, 15, 16, 63, 64, 127, 128, 129, 255, 256, 1000])
def test_a_digest_is_that_of_the_standard_library(size: int) -> None:
    data = bytes(i * 7 % 256 for i in range(size))
    assert digest_of(data) == blake2b(data, digest_size=16).digest()


@given(st.lists(st.text() | st.binary()))
def test_a_key_is_the_digest_of_the_names_with_their_sizes(names: list[str | bytes]) -> None:
    parts = [name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape") for name in names]
    whole = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    assert row_key(*names) == blake2b(whole, digest_size=16).digest()


def test_a_name_that_is_no_text_and_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        row_key(1)  # type: ignore[arg-type]
