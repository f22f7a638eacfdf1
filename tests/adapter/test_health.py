"""Health checks and their metrics, as the adapter serves them."""

from pathlib import Path

from tests.adapter.serving import served_adapter


async def test_health_checks_are_in_slis_metrics(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:
        await adapter.request("/livez")
        reply = await adapter.request_as_master("/metrics/slis")
        assert (reply.status, reply.content_type.partition(";")[0]) == (200, "text/plain")
        assert b'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in reply.body
        assert (await adapter.request("/metrics/slis")).status == 403


async def test_health_needs_no_authentication(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:
        adapter.api.refuse_with = 500
        adapter.names.problem = "Prometheus has not answered yet"
        assert (await adapter.request("/livez", headers={"Authorization": "Bearer nonsense"})).body == b"ok"
        reply = await adapter.request("/readyz")
        assert (reply.status, reply.content_type) == (500, "text/plain; charset=utf-8")
        assert b"[-]catalog failed: Prometheus has not answered yet\n" in reply.body
        assert (await adapter.request("/livez", method="HEAD")).status == 200
        assert adapter.api.reviews == []
