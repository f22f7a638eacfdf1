"""The shard of an object."""

import subprocess

import pytest

from autoscaler.loop.sharding import Shard, pod_ordinal, shard_number


@pytest.mark.parametrize(
    ("namespace", "name", "of_2", "of_3", "of_16"),
    [
        ("default", "web", 0, 2, 4),
        ("default", "api", 0, 1, 4),
        ("team-a", "web", 1, 1, 3),
        ("kube-system", "coredns", 1, 2, 11),
        ("shop", "größe", 1, 2, 1),
    ],
)
def test_the_shard_of_an_object_is_the_same_in_every_release(
    namespace: str, name: str, of_2: int, of_3: int, of_16: int
) -> None:
    assert [shard_number(namespace, name, count=count) for count in (1, 2, 3, 16)] == [0, of_2, of_3, of_16]


def test_it_can_be_computed_with_standard_tools() -> None:
    script = "printf default/web | sha256sum | cut -c1-16"
    digits = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True).stdout
    assert shard_number("default", "web", count=7) == int(digits, 16) % 7


def test_each_object_is_in_exactly_one_shard_and_the_shards_are_about_even() -> None:
    keys = [(f"team-{index % 20}", f"service-{index}") for index in range(4000)]
    shards = [Shard(index=index, count=4) for index in range(4)]
    assert all(sum(shard.owns(*key) for shard in shards) == 1 for key in keys)
    assert all(900 < sum(shard.owns(*key) for key in keys) < 1100 for shard in shards)


def test_the_only_shard_owns_all_and_has_no_number() -> None:
    assert Shard().owns("default", "web")
    assert Shard().name("lease") == "lease"
    assert Shard(index=0, count=2).name("lease") == "lease-0"


@pytest.mark.parametrize(
    ("pod", "number"),
    [
        ("autoscaler-0", 0),
        ("autoscaler-12", 12),
        ("milliscale-autoscaler-3", 3),
        ("autoscaler-7f9c6d5b4-x2x7k", None),
        ("autoscaler-007", None),
        ("autoscaler", None),
        ("autoscaler-1\n", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_ordinal_of_a_statefulsets_pod(pod: str, number: int | None) -> None:
    assert pod_ordinal(pod) == number
