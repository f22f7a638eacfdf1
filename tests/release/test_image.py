"""The image's contents, and its processes with the flags of the manifests: as another user, with a read-only root."""

import ast
import asyncio
import ctypes
import inspect
import json
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kube.version import VERSION
from kube.web import plotly
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from tests.adapter.metrics_env import RESOURCES
from tests.autoscaler.cluster import running_cluster
from tests.eventually import eventually
from tests.kube.scripted import scripted_server
from tests.release.conftest import BuiltImage
from tools.image import ROOT
from tools.release_check import SCRIPTS
from tools.sandbox import Isolation
from tools.sbom import sbom_error, write_sbom
from tools.slim_environment import loaded_part

# One process builds the image for all of them.
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("image"), pytest.mark.timeout(600)]


OF_EXTRAS = ("azure", "botocore", "google", "prometheus_api_client", "requests")
"""What pyproject.toml has as optional dependencies."""

DEVELOPMENT = sysconfig.get_path("purelib")

PRINT_VERSIONS = """
from importlib.metadata import distributions
print(json.dumps({each.name: each.version for each in distributions()}))
"""


def versions(printed: str) -> dict[str, str]:
    """Return what PRINT_VERSIONS has printed."""
    return {canonicalize_name(name): version for name, version in json.loads(printed).items()}


def run(built: BuiltImage, *command: str) -> str:
    """Return what a command of the image prints, where nothing but its own environment is visible."""
    line = built.image.command_line(built.sandbox, list(command))
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def locked(lock: str = "requirements.lock") -> dict[str, str]:
    """Return the versions that a lock file has for this platform."""
    lines = re.findall(r"^(\w[^\\\n]*?) *\\?$", (ROOT / lock).read_text(), flags=re.MULTILINE)
    requirements = [Requirement(line) for line in lines]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in requirements
        if each.marker is None or each.marker.evaluate()
    }


def test_libraries_of_clouds_are_locked_and_need_nothing_that_the_image_leaves_out(built: BuiltImage) -> None:
    """An image of requirements-clouds.lock has those of the default image, and more; it is not built here."""
    default, clouds = locked(), locked("requirements-clouds.lock")
    assert default.items() <= clouds.items()
    requirements = [Requirement(text) for name in clouds for text in distribution(name).requires or ()]
    needed = {each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})}
    assert set(map(canonicalize_name, needed)) <= clouds.keys()
    # The libraries of this environment after those of the image.
    program = f"""
import sys
sys.path.append({str(DEVELOPMENT)!r})
import botocore.auth, azure.identity, google.auth.transport.requests
files = {{name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}}
print(*{{name.partition(".")[0] for name, file in files.items() if file.startswith({str(DEVELOPMENT)!r})}})
"""
    packages = run(built, str(built.image.python), "-c", program).split()
    assert {"azure", "botocore", "google"} <= set(packages)
    names = packages_distributions()
    assert not default.keys() & {canonicalize_name(each) for package in packages for each in names.get(package, ())}


def test_bytecode_does_not_depend_on_the_time_of_the_files(built: BuiltImage) -> None:
    """What else could differ between two builds are the wheels; `make image` builds twice, and compares all files."""
    found = {path: path.read_bytes()[4:8] for path in (built.image.root / "opt").rglob("*.pyc")}
    assert len(found) > 1000
    # Flags of PEP 552: the source's hash is in the file, not its time, and a start does not read the source.
    assert {int.from_bytes(flags, "little") & 3 for flags in found.values()} == {1}


def test_all_that_modules_import_is_there_and_has_bytecode(built: BuiltImage) -> None:
    program = f"""
import importlib, importlib.util, pathlib, sys
for name in {imported_modules()}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {OF_EXTRAS}:
            raise
found = [each for each in list(sys.modules.values()) if "site-packages" in (getattr(each, "__file__", None) or "")]
sources = {{each.__name__: each.__file__ for each in found if each.__file__[-3:] == ".py"}}
cached = {{name: importlib.util.cache_from_source(path) for name, path in sources.items()}}
print([name for name, path in cached.items() if not pathlib.Path(path).exists()])
import kubernetes_asyncio.client, kubernetes_asyncio.config
print(kubernetes_asyncio.client.__file__)
"""
    without_bytecode, client = run(built, str(built.image.python), "-c", program).splitlines()
    assert without_bytecode == "[]"
    assert client.endswith("client/__init__.pyc"), "kubeconfigs need no sources of the client"


def imported_modules() -> list[str]:
    """Return the modules of the image, and what they import in functions, too."""
    found = set()
    for package in ("adapter", "autoscaler", "kube", "replay", "kubectl_milliscale", "milliscale"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] != "__main__":
                found.add(".".join(parts).removesuffix(".__init__"))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {each.name for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    found.add(node.module)
    return sorted(found)


def print_expectation() -> None:
    """Fit and judge a load that doubles each day, and print what is expected four minutes before it does."""
    import numpy as np

    from adapter.forecasts.gate import judge
    from adapter.forecasts.model import ForecastModel, MinuteSeries, fit
    from adapter.forecasts.options import ForecastOptions

    minutes, before_a_step = np.arange(11 * 1440), 10 * 1440 + 596
    history = MinuteSeries(1767225600, 100.0 + 100.0 * (minutes % 1440 >= 600))
    options = ForecastOptions(horizon=300.0)
    judge(history, options)
    model = fit(history, options)
    assert isinstance(model, ForecastModel)
    print(model.expect(history.part(0, before_a_step + 1)))  # noqa: T201


def test_forecasts_are_fitted_with_what_is_there_of_numpy(built: BuiltImage) -> None:
    program = f"{inspect.getsource(print_expectation)}\nprint_expectation()"
    printed = run(built, str(built.image.python), "-c", program)
    assert re.search(r"value=(19|20)\d\.", printed), printed


def test_layer_of_the_image_is_below_100_megabytes(built: BuiltImage) -> None:
    files = [path for path in (built.image.root / "opt").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) < 100e6


def test_libraries_lose_what_only_debuggers_read(tmp_path: Path) -> None:
    """Also those whose loaded part is not the first one, which stay as they are."""
    library = Path(msgspec._core.__file__).read_bytes()
    assert len(loaded_part(library)) < len(library)
    (tmp_path / "_core.so").write_bytes(loaded_part(library))
    ctypes.CDLL(str(tmp_path / "_core.so"))
    assert loaded_part(loaded_part(library)) == loaded_part(library)


def test_environment_has_the_locked_distributions_and_no_others(built: BuiltImage) -> None:
    installed = versions(run(built, str(built.image.python), "-c", f"import json\n{PRINT_VERSIONS}"))
    assert installed == {**locked(), "milliscale": VERSION}


def test_sbom_is_valid_and_lists_each_locked_distribution(
    built: BuiltImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The grammar of international addresses, whose import takes four seconds; `make release` checks them, too.
    monkeypatch.setitem(sys.modules, "rfc3987_syntax", None)
    path = tmp_path / "sbom.json"
    write_sbom(path, python=built.image.python, version=VERSION)
    assert sbom_error(path.read_text()) is None
    sbom = json.loads(path.read_text())
    assert (sbom["metadata"]["component"]["name"], sbom["metadata"]["component"]["version"]) == ("milliscale", VERSION)
    of_python = [each for each in sbom["components"] if each["purl"].startswith("pkg:pypi/")]
    assert {canonicalize_name(each["name"]): each["version"] for each in of_python} == locked()
    (vendored,) = [each for each in sbom["components"] if each not in of_python]
    assert vendored["purl"] == f"pkg:npm/{plotly.PACKAGE}@{plotly.VERSION}"
    # The same environment makes the same file: neither the time nor a random number is in it.
    assert "serialNumber" not in sbom
    assert "timestamp" not in sbom["metadata"]
    assert [each["bom-ref"] for each in sbom["components"]] == sorted(each["bom-ref"] for each in sbom["components"])


def test_sbom_that_misses_a_field_is_not_valid() -> None:
    """The validator of the test above is able to fail."""
    assert sbom_error('{"bomFormat": "CycloneDX"}') is not None


@pytest.mark.parametrize("script", SCRIPTS)
def test_commands_have_the_version_of_the_build(built: BuiltImage, script: str) -> None:
    assert run(built, script, "--version").endswith(f"version {VERSION}\n")


def test_prometheus_adapters_path_starts_the_adapter(built: BuiltImage) -> None:
    assert run(built, str(built.image.root / "adapter"), "--version").endswith(f"version {VERSION}\n")


def test_default_command_starts(built: BuiltImage) -> None:
    assert run(built, *built.image.command).startswith("Usage: milliscale-adapter")


def test_image_cannot_be_written_to(built: BuiltImage) -> None:
    if built.sandbox.isolation is not Isolation.NAMESPACES:
        pytest.skip("this user may not make user namespaces")
    root = built.image.root
    program = """
import os, pathlib, sys
print(os.getuid(), sorted(os.environ))
for path in sys.argv[1:]:
    try:
        pathlib.Path(path, "written").write_text("")
    except OSError as error:
        print(error.strerror)
"""
    folders = [str(root), str(root / "opt" / "milliscale"), str(ROOT), str(built.sandbox.writable)]
    user, *errors = run(built, str(built.image.python), "-c", program, *folders).splitlines()
    assert user == f"{built.image.user} {sorted([*built.image.environment, 'LC_CTYPE', 'TMPDIR'])}"
    assert errors == ["Read-only file system"] * 3  # and the last one can


def container(name: str) -> dict[str, Any]:
    """Return the container of a Deployment."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "base" / f"{name}-deployment.yaml").read_text())
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    return dict(deployment["spec"]["template"]["spec"]["containers"][0])


def command(name: str, **changed: object) -> list[str]:
    """Return a Deployment's command and arguments, with some values changed or added."""
    spec = container(name)
    flags = dict(each.partition("=")[::2] for each in spec["args"])
    flags |= {f"--{flag.replace('_', '-')}": str(value) for flag, value in changed.items()}
    return [*spec["command"], *(f"{flag}={value}" if value else flag for flag, value in flags.items())]


async def is_ready(url: str) -> bool:
    async with aiohttp.ClientSession() as http:
        try:
            async with http.get(f"{url}/readyz", ssl=False) as response:
                text = await response.text()
        except aiohttp.ClientError as error:
            raise AssertionError("it does not listen yet") from error
    assert response.status == 200, text
    return text == "ok"


async def test_adapter_is_ready_with_the_flags_of_the_manifests(built: BuiltImage, tmp_path: Path) -> None:
    port, rules = free_port(), tmp_path / "rules.yaml"
    rules.write_text("externalRules: [{name: first, query: 'vector(7)'}]")
    async with scripted_server() as api:
        api.handlers.update(RESOURCES)
        kubeconfig = api.kubeconfig(tmp_path)
        line = command(
            "adapter",
            bind_address=LOOPBACK,
            secure_port=port,
            prometheus_url="http://127.0.0.1:9",
            config=rules,
            cert_dir=built.sandbox.writable / "serving-cert",
            lister_kubeconfig=kubeconfig,
            authentication_kubeconfig=kubeconfig,
            authorization_kubeconfig=kubeconfig,
            authentication_skip_lookup="",
        )
        await runs_until_ready(built, line, tmp_path / "log", f"https://{LOOPBACK}:{port}")


async def test_autoscaler_is_ready_with_the_flags_of_the_manifests(built: BuiltImage, tmp_path: Path) -> None:
    port = free_port()
    async with running_cluster(tmp_path) as cluster:
        line = command(
            "autoscaler",
            bind_address=LOOPBACK,
            metrics_port=port,
            kubeconfig=cluster.server.kubeconfig("autoscaler", ("system:masters",)),
            leader_elect_resource_namespace="default",
        )
        await runs_until_ready(built, line, tmp_path / "log", f"http://{LOOPBACK}:{port}")


async def runs_until_ready(built: BuiltImage, command: list[str], log: Path, url: str) -> None:
    line = built.image.command_line(built.sandbox, command)
    async with await ChildProcess.start(command[0], line, log=log) as process:

        async def is_ready_or_has_ended() -> bool:
            if process.exit_status is not None:
                pytest.fail(await asyncio.to_thread(log.read_text))
            return await is_ready(url)

        assert await eventually(is_ready_or_has_ended)
        assert await process.stop(grace=30) == 0
    assert "Traceback" not in await asyncio.to_thread(log.read_text)
