"""skaffold.yaml names only what exists, and fits skaffold's schema where that is at hand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "skaffold.yaml", ROOT / "load-generators" / "skaffold.yaml"]
MODULES = [(file.parent, module) for file in FILES for module in yaml.safe_load_all(file.read_text())]
VALUES = yaml.safe_load((ROOT / "helm" / "keygrouping" / "values.yaml").read_text())


def artifacts() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each with the folder that its paths start from."""
    return ((folder, artifact) for folder, module in MODULES for artifact in module["build"]["artifacts"])


def releases() -> Iterator[dict[str, Any]]:
    return (release for _, module in MODULES for release in module["deploy"].get("helm", {}).get("releases", []))


def test_it_fits_the_schema() -> None:
    file = os.environ.get("SKAFFOLD_SCHEMA")
    if not file:
        pytest.skip("SKAFFOLD_SCHEMA does not name skaffold's JSON schema: skaffold.yaml is not checked against it")
    schema = jsonschema_rs.Draft7Validator(json.loads(Path(file).read_text()))
    for _, module in MODULES:
        schema.validate(module)
        assert re.fullmatch(r"skaffold/v4beta(\d|1[0-4])", module["apiVersion"])


def test_every_file_exists() -> None:
    for folder, artifact in artifacts():
        assert (folder / artifact.get("context", ".") / artifact["docker"]["dockerfile"]).is_file()
    for folder, module in MODULES:
        for path in module.get("manifests", {}).get("kustomize", {}).get("paths", []):
            assert (folder / path / "kustomization.yaml").is_file()
    profiles = (profile for _, module in MODULES for profile in module.get("profiles", []))
    patched = [value for profile in profiles for patch in profile.get("patches", []) for value in patch["value"]]
    for release in releases():
        assert (ROOT / release["chartPath"] / "Chart.yaml").is_file()
        for file in [*release["valuesFiles"], *patched]:
            assert (ROOT / file).is_file(), file


def test_every_value_exists_and_gets_the_image_of_its_part() -> None:
    images = {artifact["image"] for _, artifact in artifacts()}
    used = {VALUES["load"]["image"]["repository"]}
    for release in releases():
        for path, template in release["setValueTemplates"].items():
            part, *rest = path.split(".")
            assert rest[-1] in VALUES[part]["image"], path
            (image,) = re.findall(r"^\{\{\.IMAGE_(?:REPO|TAG)_(\w+)\}\}$", template)
            assert image.replace("_", "-") == VALUES[part]["image"]["repository"]
            used.add(VALUES[part]["image"]["repository"])
    assert used == images


def test_ports_are_those_of_the_services() -> None:
    for forward in (forward for _, module in MODULES for forward in module.get("portForward", [])):
        part = forward["resourceName"].removeprefix("keygrouping-")
        assert VALUES[part]["service"]["port"] == forward["port"]
