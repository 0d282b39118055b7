"""Every package is built, installed with what it declares and nothing else, and imported, without network."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from .test_packages import PROJECTS, ROOT, each_package

UV = ROOT / ".tools" / "bootstrap" / "bin" / "uv"
ENVIRONMENT = {"UV_CACHE_DIR": str(ROOT / ".tools" / "uv-cache")} | dict(os.environ) | {"UV_OFFLINE": "1"}
IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(package.__file__, len(names))
"""


def uv(*arguments: str | Path, **environment: str) -> None:
    command = [UV, "--quiet", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of every package, and the wheel that was made of it."""
    folder = tmp_path_factory.mktemp("dist")
    for package in PROJECTS:
        uv("build", "--out-dir", folder, package)
    return folder


def module_of(package: str) -> str:
    return str(PROJECTS[package]["tool"]["uv"]["build-backend"]["module-name"])


def file_of(built: Path, package: str, ending: str) -> Path:
    name = PROJECTS[package]["project"]["name"].replace("-", "_")
    return built / f"{name}-{PROJECTS[package]['project']['version']}{ending}"


@each_package
def test_a_wheel_has_metadata_license_readme_and_all_files(built: Path, package: str) -> None:
    project = PROJECTS[package]["project"]
    with zipfile.ZipFile(file_of(built, package, "-py3-none-any.whl")) as wheel:
        files = wheel.namelist()
        about = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        metadata = email.message_from_string(wheel.read(f"{about}/METADATA").decode())
        assert wheel.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert (metadata["Name"], metadata["Version"]) == (project["name"], project["version"])
    assert (metadata["License-Expression"], metadata["Summary"]) == ("Apache-2.0", project["description"])
    assert str(metadata.get_payload()).strip() == (ROOT / package / "README.md").read_text().strip()
    source = ROOT / package / "src"
    own = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {file for file in files if not file.startswith(about) and not file.endswith("/")} == own


@each_package
def test_an_sdist_has_all_that_a_wheel_is_made_of(built: Path, package: str) -> None:
    with tarfile.open(file_of(built, package, ".tar.gz")) as sdist:
        files = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    assert {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", f"src/{module_of(package)}/py.typed"} <= files.keys()
    assert files["LICENSE"].isfile(), "no link out of the archive"


@pytest.mark.long
@each_package
def test_it_is_imported_where_only_its_dependencies_are(built: Path, package: str, tmp_path: Path) -> None:
    fresh = tmp_path / "environment"
    name = PROJECTS[package]["project"]["name"]
    chosen = ("--package", name, "--all-extras", "--no-dev", "--no-install-workspace", "--python", sys.executable)
    uv("sync", "--frozen", *chosen, UV_PROJECT_ENVIRONMENT=str(fresh), UV_COMPILE_BYTECODE="0")
    wheels = [file_of(built, needed, "-py3-none-any.whl") for needed in (package, *siblings(package))]
    python = fresh / "bin" / "python"
    uv("pip", "install", "--no-deps", "--python", python, *wheels)
    command: list[str | Path] = [python, "-I", "-c", IMPORT_ALL, module_of(package)]
    # The users of locust are made where it is known what they call.
    environment = {"KEYGROUPING_HTTPLOAD_ROUTER_URL": "http://127.0.0.1:1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(fresh))


def siblings(package: str) -> set[str]:
    """The other packages of the workspace that it needs with all its extras, those included that they need."""
    names = {PROJECTS[other]["project"]["name"]: other for other in PROJECTS}
    found, left = {package}, [package]
    while left:
        project = PROJECTS[left.pop()]["project"]
        wanted = chain(project["dependencies"], *project.get("optional-dependencies", {}).values())
        required = {names[one] for one in (each.partition("[")[0] for each in wanted) if one in names}
        left += required - found
        found |= required
    return found - {package}
