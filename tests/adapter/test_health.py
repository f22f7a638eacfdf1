"""Health checks and their metrics, as the adapter serves them."""

from tests.adapter.serving import ServedAdapter


async def test_health_checks_are_in_slis_metrics(new_adapter: ServedAdapter) -> None:
    await new_adapter.request("/livez")
    reply = await new_adapter.request_as_master("/metrics/slis")
    assert (reply.status, reply.content_type.partition(";")[0]) == (200, "text/plain")
    assert b'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in reply.body
    assert (await new_adapter.request("/metrics/slis")).status == 403


async def test_health_needs_no_authentication(new_adapter: ServedAdapter) -> None:
    new_adapter.api.refuse_with = 500
    new_adapter.names.problem = "Prometheus has not answered yet"
    assert (await new_adapter.request("/livez", headers={"Authorization": "Bearer nonsense"})).body == b"ok"
    reply = await new_adapter.request("/readyz")
    assert (reply.status, reply.content_type) == (500, "text/plain; charset=utf-8")
    assert b"[-]catalog failed: Prometheus has not answered yet\n" in reply.body
    assert (await new_adapter.request("/livez", method="HEAD")).status == 200
    assert new_adapter.api.reviews == []
