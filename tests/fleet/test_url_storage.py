"""The storage behind a URL, without a cluster: fsspec comes with Ray."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from hankweave_server.errors import Stop
from hankweave_server.features.map.remote.packages import storage_at


def test_a_url_keeps_packages_as_a_folder_does(tmp_path: Path) -> None:
    """Stored, replaced, listed and removed; fsspec's memory stands in for an object store."""
    storage = storage_at("memory://bucket/maps")
    package, copy = tmp_path / "package", tmp_path / "copy"
    assert storage.names("") == []
    for content in ("first", "second"):
        package.write_text(content)
        storage.put("item.1/start", package)

    storage.put("hank", package)
    storage.get("item.1/start", copy)
    assert copy.read_text() == "second"
    assert storage.names("") == ["hank", "item.1"]
    assert storage.names("item.1") == ["start"]
    with pytest.raises(FileNotFoundError):
        storage.get("item.1/ended", copy)

    storage.remove("item.1")
    storage.remove("item.1")
    assert storage.names("") == ["hank"]
    storage.remove("")
    assert storage.names("") == []


@pytest.mark.skipif(find_spec("s3fs") is not None, reason="s3fs is installed")
def test_a_protocol_whose_package_is_missing_is_refused_with_its_name() -> None:
    """The hint is the command that installs it."""
    with pytest.raises(Stop) as refused:
        storage_at("s3://bucket/maps")

    assert refused.value.hint is not None
    assert refused.value.hint.endswith("pip install s3fs")
    with pytest.raises(Stop, match="nonsense"):
        storage_at("nonsense://bucket")
