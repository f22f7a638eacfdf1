"""The objects that the demo has beside the three HPAs that scale up and down."""

from pathlib import Path

from click.testing import CliRunner

from adapter.cli import main as adapter
from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.install import apply, read_objects
from playground.scenario import SHOWCASE, SWINGING, showcase_load, wave_of


async def test_each_hpa_of_the_showcase_has_a_deployment_and_one_is_at_its_maximum(tmp_path: Path) -> None:
    objects = await read_objects(SHOWCASE)
    hpas = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "HorizontalPodAutoscaler"}
    assert hpas.keys() == {each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"}
    assert not hpas.keys() & set(SWINGING)
    wave, metric = wave_of(showcase_load(period=50), "busy"), hpas["busy"]["metrics"][0]["pods"]
    assert wave is not None
    assert wave.low / int(metric["target"]["averageValue"]) > hpas["busy"]["maxReplicas"]
    async with PlaygroundApiServer(tmp_path) as server, await KubeClient.connect(server.kubeconfig()) as client:
        await apply(client, objects)  # or the API refuses one


def test_metric_rules_of_the_showcase_have_no_findings() -> None:
    result = CliRunner().invoke(adapter, ["check", f"--config={SHOWCASE}"])
    assert result.exit_code == 0, result.output
    assert result.output.count("0 errors, 0 warnings") == 2
