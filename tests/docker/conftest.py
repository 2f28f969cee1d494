"""The image of the Dockerfile, which `scripts/test --docker` has built; without it, no test."""

from __future__ import annotations

import os

import pytest

from docker.containers import IMAGE, Image

collect_ignore_glob = [] if IMAGE in os.environ else ["test_image.py"]


@pytest.fixture(scope="session")
def image() -> Image:
    return Image.built()
