"""The other files of a release: the same files each time, with the release's version and image."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from playground.binaries import MissingBinaryError, find
from tests.helm_engine import require_helm
from tools.archives import CHECKSUMS, checksums
from tools.release import overlays, package_chart, render_manifests
from tools.release_check import ReleaseError, check, check_chart, images

IMAGE = "registry.example/team/milliscale"
VERSION = "1.2.3rc1"
TAG = "1.2.3-rc.1"


@pytest.fixture(scope="module")
def _kubectl() -> None:
    try:
        find("kubectl")
    except MissingBinaryError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("_kubectl")
def test_manifests_of_each_overlay_have_the_image(tmp_path: Path) -> None:
    render_manifests(tmp_path, image=IMAGE, tag=TAG)
    definitions = [*yaml.safe_load_all((tmp_path / "crds.yaml").read_text())]
    assert [each["kind"] for each in definitions] == ["CustomResourceDefinition"] * 3
    (tmp_path / "crds.yaml").unlink()
    assert {path.name for path in tmp_path.iterdir()} == {f"manifests-{name}.yaml" for name in overlays()}
    assert {"base", "adapter-only", "managed", "shadow", "sharded"} <= set(overlays())
    for path in tmp_path.iterdir():
        assert images(path.read_text()) == {f"{IMAGE}:{TAG}"}
        assert all(document["kind"] for document in yaml.safe_load_all(path.read_text()))


def test_chart_has_the_version_and_is_the_same_each_time(tmp_path: Path) -> None:
    require_helm()
    path = package_chart(tmp_path, version=VERSION, time=1_700_000_000)
    assert path.name == f"milliscale-{TAG}.tgz"
    content = path.read_bytes()
    check_chart(path, version=VERSION)
    with pytest.raises(ReleaseError):
        check_chart(path, version="1.2.2")
    path.unlink()
    assert package_chart(tmp_path, version=VERSION, time=1_700_000_000).read_bytes() == content


def test_checksums_are_as_sha256sum_reads_them(tmp_path: Path) -> None:
    (tmp_path / "krew").mkdir()
    for name in ("b.whl", "krew/a.tar.gz"):
        (tmp_path / name).write_text(name)
    (tmp_path / CHECKSUMS).write_text(checksums(tmp_path))
    checked = ["sha256sum", "--check", "--strict", CHECKSUMS]
    assert (
        subprocess.run(checked, cwd=tmp_path, check=True, capture_output=True).stdout
        == b"b.whl: OK\nkrew/a.tar.gz: OK\n"
    )
    (tmp_path / "b.whl").write_text(json.dumps("changed"))
    with pytest.raises(ReleaseError, match=CHECKSUMS):
        check(tmp_path, version="1.2.3", image=IMAGE)
