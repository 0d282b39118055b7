"""Driver and executors know each other by the secret in a file, as the chart mounts it; nobody else is listened to."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from keygrouping_local.java import find_java
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

ENTRYPOINT = Path(__file__).parents[1] / "image" / "entrypoint.sh"
ENDPOINT = "CoarseGrainedScheduler"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of the release")
    return file


@pytest.fixture
def driver(secret: Path) -> Iterator[int]:
    """The port of a driver on Kubernetes that has the secret, but no endpoint to talk to.

    It has a JVM of its own: in one with a session in one process, that session's secret is everybody's.
    """
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    jvm: Any = gateway.jvm
    conf = jvm.org.apache.spark.SparkConf(False)
    given = {"spark.master": "k8s://https://none", "spark.authenticate": "true"}
    for name, value in {**given, "spark.authenticate.secret.file": str(secret)}.items():
        conf = conf.set(name, value)
    config = getattr(getattr(jvm.org.apache.spark.internal.config, "package$"), "MODULE$")
    manager = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), config.AUTH_SECRET_FILE())
    manager.initializeAuth()
    rpc = jvm.org.apache.spark.rpc.RpcEnv.create("driver", "127.0.0.1", 0, conf, manager, False)
    yield int(rpc.address().port())
    rpc.shutdown()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def executor(port: int, *options: str) -> str:
    """What an executor says that the image starts with these Java options, as Spark on Kubernetes asks for it."""
    given = {
        "JAVA_HOME": str(find_java().path.parent.parent),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DRIVER_URL": f"spark://{ENDPOINT}@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "128m",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor",
        "SPARK_APPLICATION_ID": "application",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options)},
    }
    done = subprocess.run(
        ["bash", str(ENTRYPOINT), "executor"],
        env={"PATH": os.environ["PATH"]} | given,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_an_executor_is_known_by_the_secret_in_its_file(driver: int, secret: Path) -> None:
    said = executor(driver, "-Dspark.authenticate=true", f"-Dspark.authenticate.secret.file={secret}")
    assert f"Cannot find endpoint: spark://{ENDPOINT}@" in said, "it got as far as asking"


def test_who_has_another_secret_is_not_listened_to(driver: int, tmp_path: Path) -> None:
    guess = tmp_path / "guess"
    guess.write_text("a guess")
    said = executor(driver, "-Dspark.authenticate=true", f"-Dspark.authenticate.secret.file={guess}")
    assert "Cannot find endpoint" not in said
    assert "SaslException" in said


def test_in_one_process_spark_listens_to_this_machine_alone_and_to_nobody(spark: SparkSession) -> None:
    assert spark.conf.get("spark.authenticate") == "true"
    connections = psutil.Process(spark_pid(spark)).net_connections("inet")
    listening = {found.laddr.ip.removeprefix("::ffff:") for found in connections if found.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def spark_pid(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())
