"""What can be said of the images without building them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ["producer", "router", "worker", "aggregator", "observer"]
DOCKERFILES = {folder: (ROOT / folder / "Dockerfile").read_text() for folder in ("services", "spark-jobs")}
ENTRYPOINT = ROOT / "spark-jobs" / "image" / "entrypoint.sh"

WARMED_UP = sorted(
    {
        module
        for path in [*ROOT.glob("services/*/src/**/*.py"), *ROOT.glob("libs/service/src/**/*.py")]
        for module in re.findall(r"^\s*from (\S+) import .*\bwarm_up\b", path.read_text(), re.M)
    }
)
"""Modules whose kernels services compile, or load, when they start."""

each_file = pytest.mark.parametrize("folder", DOCKERFILES)
each_image = pytest.mark.parametrize("name", [*SERVICES, "load"])


def stages(text: str) -> dict[str, tuple[str, str]]:
    """What a stage starts from and what it does, by its name; the last one may have none."""
    named = re.findall(r"^FROM (\S+)(?: AS (\w+))?\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)
    return {name: (base, body) for base, name, body in named}


def lineage(name: str) -> str:
    """All lines that make an image, from the base image on, but for those of the stages that it copies from."""
    base, body = stages(DOCKERFILES["services"])[name]
    return body if base == "${PYTHON_IMAGE}" else lineage(base) + body


@each_file
def test_the_lock_file_decides_what_is_installed(folder: str) -> None:
    text = DOCKERFILES[folder]
    syncs = re.findall(r"uv sync ((?:.*\\\n)*.*)", text)
    assert len(syncs) == 2
    package = "keygrouping-${SERVICE}" if folder == "services" else "keygrouping-spark"
    for sync in syncs:
        assert "--frozen" in sync and "--no-dev" in sync and f"--package {package}" in sync
    (makes,) = re.findall(r"^UV_VERSION := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"ARG UV_VERSION={makes}\n" in text


def runs_as_a_numbered_user_without_pip(lines: str) -> bool:
    user = re.search(r"^USER (\d+):\1$", lines, re.MULTILINE)
    made = re.search(r"apt-get|uv sync|pip install", lines)
    return user is not None and "pip uninstall" in lines and made is None


@each_image
def test_it_runs_as_a_user_with_a_number_and_without_pip(name: str) -> None:
    assert runs_as_a_numbered_user_without_pip(lineage(name))


def test_spark_runs_as_a_user_with_a_number_and_without_pip() -> None:
    _, final = stages(DOCKERFILES["spark-jobs"])[""]
    assert runs_as_a_numbered_user_without_pip(final)


@each_file
def test_what_is_copied_is_there_and_not_ignored(folder: str) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILES[folder], re.MULTILINE)
    folders = [f"services/{name}" for name in SERVICES] + ["load-generators"]
    named = {word for copy in copies for word in copy.split() if not word.startswith("--")}
    for path in {word.replace("${FOLDER}", folder) for word in named for folder in folders}:
        assert (ROOT / path).exists(), path
        assert path.partition("/")[0] in kept, path


@each_file
def test_mirrors_can_be_named(folder: str) -> None:
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILES[folder], re.MULTILINE))
    assert defaults["PYTHON_IMAGE"] == "python:3.11-slim-bookworm"
    assert defaults["INDEX_URL"] == "https://pypi.org/simple"
    assert defaults["FILES_URL"] == "https://files.pythonhosted.org"
    if folder == "spark-jobs":
        assert defaults["MAVEN_URL"] == "https://repo1.maven.org/maven2/"
        assert defaults["DEBIAN_URL"] == "http://deb.debian.org/debian"


@each_image
def test_an_image_starts_the_command_of_its_package(name: str) -> None:
    folder = ROOT / ("load-generators" if name == "load" else f"services/{name}")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    _, body = stages(DOCKERFILES["services"])[name]
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", body, re.M)
    assert json.loads(entry)[-1] in project["scripts"]
    assert f'description="{project["description"].removesuffix(".")}' in body


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_finds_its_kernels_compiled(name: str) -> None:
    """Else each pod compiles them at its start, for half a minute on a small node, and answers nothing meanwhile."""
    assert "COPY --from=kernels /app/kernels /app/kernels" in lineage(name)
    _, body = stages(DOCKERFILES["services"])[name]
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", body, re.M)
    assert json.loads(entry)[0] == "start"


@pytest.mark.parametrize("module", WARMED_UP)
def test_what_a_service_loads_at_its_start_is_compiled_before(module: str) -> None:
    """In its image, and by `make install`."""
    _, body = stages(DOCKERFILES["services"])["kernels"]
    for text in (body, (ROOT / "Makefile").read_text()):
        assert re.search(rf"-m {re.escape(module)}\b|from {re.escape(module)} import warm_up; warm_up", text)


def test_the_image_is_the_stage_that_is_asked_for() -> None:
    base, _ = stages(DOCKERFILES["services"])[""]
    assert base == "${SERVICE}"


@each_image
def test_services_are_asked_whether_they_live_and_the_load_generator_serves_nothing(name: str) -> None:
    assert ("HEALTHCHECK" in lineage(name)) == ("EXPOSE" in lineage(name)) == (name in SERVICES)


@each_image
def test_make_and_skaffold_build_it_of_the_same_file(name: str) -> None:
    said = subprocess.run(["make", "-n", f"image-{name}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    arguments = dict(re.findall(r"--build-arg (SERVICE|FOLDER)=(\S+)", said))
    assert "--file services/Dockerfile " in said and arguments["SERVICE"] == name
    file = ROOT / ("load-generators/skaffold.yaml" if name == "load" else "skaffold.yaml")
    (docker,) = (
        artifact["docker"]
        for artifact in yaml.safe_load(file.read_text())["build"]["artifacts"]
        if artifact["image"] == f"keygrouping-{name}"
    )
    assert docker == {"dockerfile": "services/Dockerfile", "buildArgs": arguments}


# the entry point of Spark's image


def run(tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """What the entry point makes of itself: the words that the program was called with."""
    for program in ("keygrouping-spark", "bin/spark-submit", "bin/java"):
        file = tmp_path / program
        file.parent.mkdir(exist_ok=True)
        file.write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@" "submit: ${PYSPARK_SUBMIT_ARGS:-}"\n')
        file.chmod(0o755)
    base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    command = ["bash", str(ENTRYPOINT), *arguments]
    done = subprocess.run(command, env=base | environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_resolver_of_sparks_jars_starts_with_what_is_copied_until_then(tmp_path: Path) -> None:
    before, _, after = DOCKERFILES["spark-jobs"].partition("RUN PYTHONPATH=")
    for copied in re.findall(r"^COPY (?!--from)(.+)$", before, re.M):
        *sources, target = copied.split()
        for source in sources:
            into = tmp_path / target if (ROOT / source).is_dir() else tmp_path / target / Path(source).name
            into.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, into)
    # Without site, nothing of this repository is there but what was copied.
    command = [sys.executable, "-S", "-m", "keygrouping_local.jars", "--help"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": after.split()[0]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_driver_in_a_pod_tells_spark_who_it_is(tmp_path: Path) -> None:
    pod = {"POD_NAME": "kg-spark-driver-5d4-x7k2p", "POD_IP": "10.1.2.3", "POD_PREFIX": "kg-worker"}
    *words, submit = run(tmp_path, "client", "--stages", "worker", **pod)
    assert words == ["keygrouping-spark", "--stages", "worker"]
    assert submit.split() == [
        "submit:",
        *("--conf", "spark.kubernetes.driver.pod.name=kg-spark-driver-5d4-x7k2p"),
        *("--conf", "spark.driver.bindAddress=10.1.2.3"),
        *("--conf", "spark.kubernetes.executor.podNamePrefix=kg-worker-x7k2p"),
        "pyspark-shell",
    ]


def test_without_a_pod_it_is_a_plain_job(tmp_path: Path) -> None:
    assert run(tmp_path, "client") == ["keygrouping-spark", "submit: "]


def test_an_operator_gets_a_driver_in_client_mode(tmp_path: Path) -> None:
    words = run(tmp_path, "driver", "--class", "X", "local:///main.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert words[0] == "spark-submit"
    assert "spark.driver.bindAddress=10.0.0.1" in words
    assert words[-6:-1] == ["--deploy-mode", "client", "--class", "X", "local:///main.py"]


def test_an_executor_is_started_as_spark_asks(tmp_path: Path) -> None:
    asked = {
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "kg-worker-x7k2p-exec-3",
    }
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn={n} with space" for n in range(11)}
    words = run(tmp_path, "executor", **asked, **options)
    assert words[:12] == ["java", *(f"-Dn={n} with space" for n in range(11))]
    assert words[12:15] == ["-Dspark.master=k8s://executor", "-Xms1g", "-Xmx1g"]
    assert words[words.index("--podName") + 1] == "kg-worker-x7k2p-exec-3"
    assert words[words.index("--driver-url") + 1] == "spark://driver:7078"


def test_anything_else_is_run_as_it_is(tmp_path: Path) -> None:
    assert run(tmp_path, "echo", "hello") == ["hello"]


DOCKER = """#!/bin/sh
case "$1 $2" in
"image inspect")
    for last; do :; done
    repository=${last%:*} name=${repository##*/}
    printf 'other.example.com/old/%s@sha256:old\\n%s@sha256:of-%s\\n\\n' "$name" "$repository" "$name"
    ;;
*) echo "$@" ;;
esac
"""


def test_what_is_pushed_is_named_by_digest(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    values = tmp_path / "values" / "images.yaml"
    given = [f"DOCKER={docker}", f"DIGESTS={values}", "REGISTRY=registry.example.com/team", "TAG=1.2.3"]
    done = subprocess.run(["make", "push", *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    named = yaml.safe_load(values.read_text())
    assert named == {
        part: {"image": {"digest": f"sha256:of-keygrouping-{part}"}} for part in [*SERVICES, "spark", "load"]
    }
    assert list(values.parent.iterdir()) == [values]
    assert f"helm install --values {values}" in done.stdout
    chart = yaml.safe_load((ROOT / "helm" / "keygrouping" / "values.yaml").read_text())
    assert all("digest" in chart[part]["image"] for part in named)
