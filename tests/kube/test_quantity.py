"""Quantity: examples of each rule. tests/conformance has Kubernetes' recorded cases."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.values.quantity import Format, Quantity, QuantityError, milli_text


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        ("100m", 100),
        ("0.5", 500),
        ("1.5Gi", 1_610_612_736_000),
        ("2e3", 2_000_000),
        ("2E", 2**63 - 1),  # clamped: two exa-units do not fit into 64 bits of thousandths
        ("-1.5", -1500),
        (".", 0),
        ("E", 0),
        ("+", 0),
    ],
)
def test_milli_value(text: str, milli: int) -> None:
    assert Quantity.parse(text).milli_value() == milli


@pytest.mark.parametrize(
    ("text", "milli", "units"), [("1n", 1, 1), ("1001u", 2, 1), ("-1u", -1, -1), ("1500m", 1500, 2)]
)
def test_integers_are_rounded_away_from_zero(text: str, milli: int, units: int) -> None:
    assert (Quantity.parse(text).milli_value(), Quantity.parse(text).value()) == (milli, units)


def test_long_negative_numbers_are_rounded_as_in_kubernetes() -> None:
    assert Quantity.parse("-8.3181Gi").milli_value() == -8_931_491_866_213


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1000m", "1"),
        ("1500", "1500"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1.7Gi", "1825361100800m"),
        ("1024Mi", "1Gi"),
        ("2000", "2k"),
        ("1e2", "100"),
        ("100e1", "1e3"),
        ("0.1n", "1n"),
        ("0", "0"),
        ("0.00Mi", "0"),
    ],
)
def test_canonical_form(text: str, written: str) -> None:
    assert str(Quantity.parse(text)) == written


@pytest.mark.parametrize("text", ["+1", "00012", "5.", "1e03", "1E3", "1500m", "33.333k", "+1Ki", "1025Ki"])
def test_short_spellings_survive(text: str) -> None:
    assert str(Quantity.parse(text)) == text


def test_as_float_is_mantissa_times_power_of_ten() -> None:
    assert Quantity.parse("0.018").as_float() == 0.018000000000000002
    assert Quantity.parse("0.1").as_float() == 0.1
    assert Quantity.parse("-1e400").as_float() == -math.inf
    assert Quantity.parse("0e400").as_float() == 0.0


def test_from_milli_writes_binary_suffixes_for_whole_multiples_only() -> None:
    assert str(Quantity.from_milli(2_048_000, Format.BINARY_SI)) == "2Ki"
    assert str(Quantity.from_milli(2_048_500, Format.BINARY_SI)) == "2048500m"
    assert str(Quantity.from_milli(98_101_000)) == "98101"


def test_equality_ignores_the_format() -> None:
    assert Quantity.parse("1000m") == Quantity.parse("1") == Quantity.parse("1e0")
    assert hash(Quantity.parse("1Ki")) == hash(Quantity.parse("1024"))
    assert Quantity.parse("1") != Quantity.parse("1.000000001")
    assert Quantity.parse("1") != "1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "regular expression"),
        (" 1", "regular expression"),
        ("1 ", "regular expression"),
        ("１", "regular expression"),  # noqa: RUF001 - a digit, but none of ASCII's
        ("1.2.3", "regular expression"),
        ("NaN", "regular expression"),
        ("1e", "suffix"),
        ("1mm", "suffix"),
        ("--1", "suffix"),
        (".Ei", "numeric part"),
    ],
)
def test_invalid_quantities_have_the_api_servers_messages(text: str, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        Quantity.parse(text)


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
