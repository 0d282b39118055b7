"""Class-data archives: those that the install made fit, and a broken one harms nobody."""

import os
import subprocess
from pathlib import Path

import pytest
from keygrouping_local import archives
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.jars import default_jars_dir, require_jars
from keygrouping_local.java import find_java
from keygrouping_local.small_spark import java_options


@pytest.fixture
def own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEYGROUPING_LOCAL_TOOLS_DIR", str(tmp_path))
    return tmp_path


def test_without_an_archive_there_is_no_option(own_tools: Path) -> None:
    assert archives.reading("broker") == []
    assert str(own_tools) in " ".join(archives.writing("broker"))
    archives.archive("broker").touch()
    assert f"-XX:SharedArchiveFile={own_tools}/archives/broker.jsa" in archives.reading("broker")


def test_a_folder_with_a_space_is_one_option_for_spark() -> None:
    assert java_options(["-XX:SharedArchiveFile=/a b/spark.jsa"]).endswith(' "-XX:SharedArchiveFile=/a b/spark.jsa"')


@pytest.mark.skipif(not archives.archive("broker").exists(), reason="the install could not make archives")
@pytest.mark.skipif(" " in str(default_jars_dir()), reason="Java archives no class from a folder with a space")
def test_the_brokers_archive_fits_its_class_path() -> None:
    jars = os.pathsep.join(map(str, require_jars("broker", default_jars_dir())))
    java = [find_java().path, "-cp", jars, "-XX:+UseSerialGC", *archives.reading("broker")]
    strict = ["-Xshare:on" if option == "-Xshare:auto" else option for option in map(str, java)]
    assert subprocess.run([*strict, "-version"], capture_output=True).returncode == 0
    other = [option.replace(jars, jars.partition(os.pathsep)[2]) for option in strict]
    assert subprocess.run([*other, "-version"], capture_output=True).returncode != 0


@pytest.mark.kafka
def test_a_broker_starts_beside_a_broken_archive(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(b"no archive" * 1000)
    options = [f"-XX:SharedArchiveFile={broken}", "-Xshare:auto"]
    with EmbeddedBroker(tmp_path / "broker", java_options=options) as broker:
        assert broker.pid is not None
