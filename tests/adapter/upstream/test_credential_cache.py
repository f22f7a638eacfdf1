"""Credentials are refreshed before they expire, by one call for all callers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from adapter.upstream import CredentialsError
from adapter.upstream.credential_cache import CredentialCache, Issued, reason


@dataclass
class Issuer:
    """Issues numbers that are valid for 1,000 seconds of a clock that the test sets."""

    now: float = 10_000.0
    calls: list[bool] = field(default_factory=list)
    failure: str = ""
    proceed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.proceed.set()

    async def issue(self, renew: bool) -> Issued[str]:
        self.calls.append(renew)
        await self.proceed.wait()
        if self.failure:
            raise CredentialsError(self.failure)
        return Issued(f"credential {len(self.calls)}", self.now + 1000)

    def cache(self, *, random: float = 0.0) -> CredentialCache[str]:
        return CredentialCache(self.issue, what="token", clock=lambda: self.now, random=lambda: random)


async def test_concurrent_callers_share_one_call() -> None:
    issuer = Issuer()
    issuer.proceed.clear()
    cache = issuer.cache()
    callers = [asyncio.create_task(cache.get()) for _ in range(50)]
    await asyncio.sleep(0)
    callers[0].cancel()
    issuer.proceed.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert results[1:] == ["credential 1"] * 49
    assert isinstance(results[0], asyncio.CancelledError)
    assert issuer.calls == [False]


@pytest.mark.parametrize(("random", "refreshed_at"), [(0.0, 700), (0.999, 850)])
async def test_credential_is_refreshed_in_the_background_before_it_expires(random: float, refreshed_at: int) -> None:
    issuer = Issuer()
    cache = issuer.cache(random=random)
    assert await cache.get() == "credential 1"
    issuer.now += refreshed_at - 1
    assert await cache.get() == "credential 1"
    assert len(issuer.calls) == 1
    issuer.now += 1
    issuer.proceed.clear()
    assert [await cache.get() for _ in range(3)] == ["credential 1"] * 3  # nobody waits
    await asyncio.sleep(0)
    assert len(issuer.calls) == 2
    issuer.proceed.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await cache.get() == "credential 2"


async def test_expired_credential_is_never_returned() -> None:
    issuer = Issuer()
    cache = issuer.cache()
    await cache.get()
    issuer.now += 991  # a request may take some seconds to arrive
    assert await cache.get() == "credential 2"


async def test_failed_refresh_keeps_the_credential_until_it_expires(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    cache = issuer.cache()
    await cache.get()
    issuer.now += 800
    issuer.failure = "no network"
    for _ in range(5):
        assert await cache.get() == "credential 1"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(issuer.calls) == 2  # the next try is a second later
    assert caplog.text.count("no network") == 1
    issuer.now += 195
    with pytest.raises(CredentialsError, match="no network"):
        await cache.get()
    issuer.failure = ""
    issuer.now += 60
    with caplog.at_level(logging.INFO):
        assert await cache.get() == "credential 4"
    assert "token: there is a credential again" in caplog.text


async def test_failures_are_not_repeated_for_each_request() -> None:
    issuer = Issuer(failure="refused")
    cache = issuer.cache()
    for _ in range(10):
        with pytest.raises(CredentialsError, match="refused"):
            await cache.get()
    assert len(issuer.calls) == 1
    issuer.now += 1
    with pytest.raises(CredentialsError):
        await cache.get()
    issuer.now += 1
    with pytest.raises(CredentialsError):
        await cache.get()
    assert len(issuer.calls) == 2  # the pauses become longer


async def test_refused_credential_is_renewed_once_in_thirty_seconds() -> None:
    issuer = Issuer()
    cache = issuer.cache()
    first = await cache.get()
    assert await asyncio.gather(*(cache.renew(first) for _ in range(5))) == [True, *[False] * 4]
    assert issuer.calls == [False, True]
    second = await cache.get()
    assert await cache.renew(first)  # it is not the current one
    assert not await cache.renew(second)
    issuer.now += 30
    assert await cache.renew(second)
    assert issuer.calls == [False, True, True]


async def test_refresh_in_progress_ends_with_the_cache() -> None:
    issuer = Issuer()
    issuer.proceed.clear()
    cache = issuer.cache()
    caller = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_credentials_are_not_in_representations() -> None:
    assert "secret" not in repr(Issued("secret", 1.0))


def test_reasons_have_no_tokens() -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
    text = reason(ValueError(f"AADSTS700016: the application\n'x' with {token} is unknown for arn:aws:iam::1:role/a"))
    assert token not in text
    assert text == "ValueError: AADSTS700016: the application 'x' with ... is unknown for arn:aws:iam::1:role/a"
    assert len(reason(ValueError("a b " * 1000))) < 1100
    assert reason(ValueError()) == "ValueError"
