"""Quantity beyond the cases of Kubernetes in tests/conformance: hostile texts, equality, and any number or text."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.values.quantity import Format, Quantity, QuantityError, milli_text


def test_equality_ignores_the_format() -> None:
    assert Quantity.parse("1000m") == Quantity.parse("1") == Quantity.parse("1e0")
    assert hash(Quantity.parse("1Ki")) == hash(Quantity.parse("1024"))
    assert Quantity.parse("1") != Quantity.parse("1.000000001")
    assert Quantity.parse("1") != "1"


@pytest.mark.parametrize(
    "text",
    [
        "1e2147483648",
        "1e-2147483648",
        "1e99999999999999999999",
        "1e4294967296",
        "9" * 1_000_000,
        "0" * 900 + "x",
        "1" * 500 + "." + "1" * 500 + "x",
        "1e" + "0" * 900 + "x",
    ],
)
def test_hostile_quantities_are_refused_at_once(text: str) -> None:
    start = time.process_time()
    with pytest.raises(QuantityError):
        Quantity.parse(text)
    assert time.process_time() - start < 5


def test_longest_allowed_quantities_are_computed() -> None:
    quantity = Quantity.parse("9" * 1000 + "e2048")
    assert quantity.milli_value() == 2**63 - 1
    assert str(quantity) == "99" + "9" * 998 + "e2048".replace("2048", "2046").replace("e", "00e")


@settings(deadline=None)
@given(milli=st.integers(-(2**63), 2**63 - 1), format=st.sampled_from(Format))
def test_canonical_form_parses_back(milli: int, format: Format) -> None:  # noqa: A002
    quantity = Quantity.from_milli(milli, format)
    assert Quantity.parse(str(quantity)) == quantity
    if abs(milli) < 10**18:
        assert Quantity.parse(str(quantity)).milli_value() == milli


@settings(deadline=None)
@given(st.text(alphabet="0123456789.+-eEinumkKMGTP", max_size=30))
def test_any_text_gives_a_quantity_or_an_error(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    again = Quantity.parse(quantity._canonical())
    assert again._canonical() == quantity._canonical()
    assert again.sign == quantity.sign


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 18))
@settings(deadline=None)
def test_milli_text_equals_the_quantity(milli: int, zeros: int) -> None:
    for number in (milli, milli // 10**zeros * 10**zeros, milli % 10**6 * 10 ** (zeros % 12)):
        assert milli_text(number) == str(Quantity.from_milli(number))
