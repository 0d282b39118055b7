"""What can be said of the images without building them."""

from __future__ import annotations

import difflib
import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ["producer", "router", "worker", "aggregator", "observer"]
DOCKERFILES = {name: ROOT / "services" / name / "Dockerfile" for name in SERVICES}
DOCKERFILES["spark"] = ROOT / "spark-jobs" / "Dockerfile"
DOCKERFILES["load"] = ROOT / "load-generators" / "Dockerfile"
ENTRYPOINT = ROOT / "spark-jobs" / "image" / "entrypoint.sh"

each_image = pytest.mark.parametrize("name", DOCKERFILES)


@each_image
def test_the_lock_file_decides_what_is_installed(name: str) -> None:
    text = DOCKERFILES[name].read_text()
    syncs = re.findall(r"uv sync ((?:.*\\\n)*.*)", text)
    assert len(syncs) == 2
    for sync in syncs:
        assert "--frozen" in sync and "--no-dev" in sync and f"--package keygrouping-{name}" in sync
    (makes,) = re.findall(r"^UV_VERSION := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"ARG UV_VERSION={makes}\n" in text


@each_image
def test_it_runs_as_a_user_with_a_number_and_without_pip(name: str) -> None:
    *_, final = re.split(r"^FROM ", DOCKERFILES[name].read_text(), flags=re.MULTILINE)
    assert re.search(r"^USER (\d+):\1$", final, re.MULTILINE)
    assert "pip uninstall" in final
    assert not re.search(r"apt-get|uv sync|pip install", final)


@each_image
def test_what_is_copied_is_there_and_not_ignored(name: str) -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILES[name].read_text(), re.MULTILINE)
    for path in (word for copy in copies for word in copy.split() if not word.startswith("--")):
        assert (ROOT / path).exists(), path
        assert path.partition("/")[0] in kept, path


@each_image
def test_mirrors_can_be_named(name: str) -> None:
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILES[name].read_text(), re.MULTILINE))
    assert defaults["PYTHON_IMAGE"] == "python:3.11-slim-bookworm"
    assert defaults["INDEX_URL"] == "https://pypi.org/simple"
    assert defaults["FILES_URL"] == "https://files.pythonhosted.org"
    if name == "spark":
        assert defaults["MAVEN_URL"] == "https://repo1.maven.org/maven2/"
        assert defaults["DEBIAN_URL"] == "http://deb.debian.org/debian"


OWN_LINES = {
    # With the data set of the demo.
    "producer": """
-        --package keygrouping-NAME --package keygrouping-service --extra tracing
+        --package keygrouping-NAME --package keygrouping-service --extra tracing --extra flights
-        --package keygrouping-NAME --package keygrouping-service --extra tracing
+        --package keygrouping-NAME --package keygrouping-service --extra tracing --extra flights
""",
    "router": """
+# For any processor of the architecture: kernels of another one would be compiled anew at each start.
+RUN NUMBA_CACHE_DIR=/app/kernels NUMBA_CPU_NAME=generic /app/bin/python -m keygrouping.precompile
+COPY --chmod=755 FOLDER/start.sh /app/bin/start
-    KEYGROUPING_HTTP_HOST=0.0.0.0 KEYGROUPING_HTTP_PORT=8080
+    KEYGROUPING_HTTP_HOST=0.0.0.0 KEYGROUPING_HTTP_PORT=8080 \\
+    NUMBA_CACHE_DIR=/tmp/kernels NUMBA_CPU_NAME=generic
-ENTRYPOINT ["keygrouping-NAME"]
+ENTRYPOINT ["start", "keygrouping-NAME"]
""",
    "aggregator": "",
    "observer": "",
    # It serves no HTTP and runs to its end.
    "load": """
-ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \\
-    KEYGROUPING_HTTP_HOST=0.0.0.0 KEYGROUPING_HTTP_PORT=8080
+ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
-EXPOSE 8080
-HEALTHCHECK --start-period=30s CMD ["python", "-c", "from urllib.request import urlopen; \
urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
+CMD ["events"]
""",
}
"""Lines by which a Dockerfile differs from the worker's, but for names and description."""


@pytest.mark.parametrize("name", OWN_LINES)
def test_dockerfiles_differ_in_stated_lines_only(name: str) -> None:
    def common(service: str) -> list[str]:
        folder = str(DOCKERFILES[service].parent.relative_to(ROOT))
        text = DOCKERFILES[service].read_text().replace(folder, "FOLDER")
        text = re.sub(rf"(keygrouping[- ]){service}\b", r"\1NAME", text)
        return re.sub(r"description=.*", "description=", text).splitlines()

    found = list(difflib.unified_diff(common("worker"), common(name), n=0, lineterm=""))[2:]
    assert [line for line in found if not line.startswith("@@")] == OWN_LINES[name].strip().splitlines()


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
    assert named == {part: {"image": {"digest": f"sha256:of-keygrouping-{part}"}} for part in DOCKERFILES}
    assert list(values.parent.iterdir()) == [values]
    assert f"helm install --values {values}" in done.stdout
    chart = yaml.safe_load((ROOT / "helm" / "keygrouping" / "values.yaml").read_text())
    assert all("digest" in chart[part]["image"] for part in named)
