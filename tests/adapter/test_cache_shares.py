"""What a full cache evicts."""

from __future__ import annotations

from adapter.caches import CacheShares


def filled(**sizes: int) -> CacheShares[str]:
    """Return a cache of 100 with 40 for namespaces; each owner has so many entries of 10, "common" is ""."""
    shares: CacheShares[str] = CacheShares(100, of_namespaces=40)
    for owner, count in sizes.items():
        for number in range(count):
            shares.add("" if owner == "common" else owner, f"{owner}-{number}", 10)
    return shares


def test_namespaces_evict_nothing_of_the_rules_for_all() -> None:
    shares = filled(common=6, shop=4)
    assert shares.to_evict("shop", 10) == "shop-0"


def test_namespace_with_the_most_evicts_its_own_oldest_entry() -> None:
    shares = filled(bank=1, shop=3)
    assert shares.to_evict("bank", 10) == "shop-0"
    assert shares.to_evict("shop", 10) == "shop-0"
    assert shares.to_evict("other", 10) == "shop-0"


def test_rules_for_all_use_what_namespaces_do_not() -> None:
    shares = filled(common=9, shop=1)
    assert shares.to_evict("", 10) == "common-0"
    assert shares.to_evict("shop", 10) == "common-0"  # namespaces have a right to 40
    shares.discard("", "common-0")
    assert shares.to_evict("shop", 10) is None


def test_an_entry_that_is_used_again_is_the_youngest() -> None:
    shares = filled(shop=4)
    shares.add("shop", "shop-0", 10)
    assert shares.to_evict("shop", 10) == "shop-1"
    assert shares.size == 40


def test_a_large_entry_leaves_room_for_those_of_other_namespaces() -> None:
    assert filled().largest("shop") == 10
    assert filled().largest("") == 100


def test_a_new_entry_counts_for_its_namespace_before_it_is_there() -> None:
    shares: CacheShares[str] = CacheShares(100, of_namespaces=10)
    shares.add("shop", "s", 5)
    shares.add("bank", "b", 4)
    assert shares.to_evict("bank", 3) == "b"
    assert shares.to_evict("shop", 3) == "s"
