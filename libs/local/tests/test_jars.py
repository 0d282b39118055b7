"""Laws of the installation of jars."""

import json
import re
from pathlib import Path

import pytest
from keygrouping_local import jars
from keygrouping_local.errors import LocalError
from keygrouping_local.jar_lock import LOCK, differences, lock_of, read_lock, write_lock
from keygrouping_local.jars import STAMP, default_jars_dir, install, is_installed, require_jars


def test_the_broker_has_its_console_tools_and_spark_its_connector() -> None:
    names = {name: [path.name for path in require_jars(name, default_jars_dir())] for name in ("broker", "spark")}
    assert {"kafka_2.13-4.2.2.jar", "kafka-tools-4.2.2.jar", "slf4j-simple-1.7.36.jar"} <= set(names["broker"])
    assert [name.rsplit("-", 1)[0] for name in names["spark"]] == [
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    ]


def test_each_jar_is_there_in_one_version() -> None:
    for name in ("broker", "spark"):
        artifacts = [path.name.rsplit("-", 1)[0] for path in require_jars(name, default_jars_dir())]
        assert len(artifacts) == len(set(artifacts))


def test_a_second_installation_does_nothing() -> None:
    said: list[str] = []
    install(default_jars_dir(), Path("unused"), said.append, repository="http://127.0.0.1:1/")
    assert said == [f"jars: all there in {default_jars_dir()}"]


def test_the_lock_names_every_jar_and_no_other() -> None:
    locked = read_lock()
    installed = {str(path.relative_to(default_jars_dir())) for path in default_jars_dir().glob("*/*.jar")}
    assert set(locked) == installed
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in locked.values())
    assert differences(default_jars_dir()) == []


def test_a_jar_that_is_not_that_of_the_lock_stops_the_installation(tmp_path: Path) -> None:
    copy_of_stamp(tmp_path)
    victim = tmp_path / "spark" / "commons-pool2-2.13.1.jar"
    forged = bytearray(victim.read_bytes())
    forged[1000] ^= 1
    victim.unlink()
    victim.write_bytes(forged)
    assert is_installed(tmp_path), "of the same size"
    with pytest.raises(LocalError, match=r"1 jars are not those of jars\.lock: spark/commons-pool2-2\.13\.1\.jar has"):
        install(tmp_path, tmp_path / "ivy", print, repository="http://127.0.0.1:1/")
    assert not is_installed(tmp_path), "and no test or run takes it"


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_a_jar_too_few_or_too_many_is_told(tmp_path: Path, change: str) -> None:
    copy_of_stamp(tmp_path)
    if change == "missing":
        (tmp_path / "broker" / "slf4j-simple-1.7.36.jar").unlink()
        told = "broker/slf4j-simple-1.7.36.jar has SHA-256 none: it is missing"
    else:
        (tmp_path / "broker" / "extra-1.jar").write_bytes(b"")
        told = "not any: nobody wants it"
    (line,) = differences(tmp_path)
    assert told in line


def test_the_lock_is_rewritten_after_a_change_of_versions(tmp_path: Path) -> None:
    copy_of_stamp(tmp_path)
    lock = tmp_path / "lock"
    write_lock(tmp_path, lock)
    assert read_lock(lock) == read_lock()
    assert lock.read_text() == LOCK.read_text()


def copy_of_stamp(tmp_path: Path) -> dict[str, object]:
    stamp: dict[str, object] = json.loads((default_jars_dir() / STAMP).read_text())
    for source in default_jars_dir().glob("*/*.jar"):
        target = tmp_path / source.relative_to(default_jars_dir())
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(source)
    (tmp_path / STAMP).write_text(json.dumps(stamp))
    return stamp


def test_whatever_is_missing_cut_short_or_of_another_version_counts_as_not_installed(tmp_path: Path) -> None:
    stamp = copy_of_stamp(tmp_path)
    assert is_installed(tmp_path)
    (tmp_path / STAMP).write_text(json.dumps(stamp | {"artifacts": []}))
    assert not is_installed(tmp_path)
    (tmp_path / STAMP).write_text(json.dumps(stamp))
    victim = next(tmp_path.glob("spark/*.jar"))
    victim.unlink()
    assert not is_installed(tmp_path)
    victim.write_bytes(b"cut short")
    assert not is_installed(tmp_path)
    (tmp_path / STAMP).write_text("no JSON")
    assert not is_installed(tmp_path)


def test_an_unreachable_repository_is_told_in_one_line(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(LocalError, match=r"can't be had from http://127\.0\.0\.1:1/ .*check the network") as error:
        install(tmp_path / "jars", tmp_path / "ivy", said.append, repository="http://127.0.0.1:1/")
    assert "\n" not in str(error.value)
    assert not is_installed(tmp_path / "jars")


def test_progress_tells_every_tenth_module_and_every_download() -> None:
    lines = [f"\tfound org#m{i};1 in central" for i in range(25)]
    lines.append("downloading https://repository/org/a/1/a-1.jar ...")
    said: list[str] = []
    assert len(list(jars._reported(lines, said.append))) == len(lines)
    assert said == ["jars: 10 found", "jars: 20 found", "jars: downloading a-1.jar"]


@pytest.mark.parametrize("spark", ["4.0", "4.1", "4.2"])
def test_each_spark_has_its_connector_in_a_lock_of_its_own(spark: str) -> None:
    wanted = {f"spark/{each.name}-{each.version}.jar" for each in jars.artifacts_of(spark) if each.set == "spark"}
    locked = read_lock(lock_of(spark))
    assert {path for path in locked if path.startswith("spark/")} == wanted
    brokers = {path: digest for path, digest in locked.items() if path.startswith("broker/")}
    assert brokers == {path: digest for path, digest in read_lock().items() if path.startswith("broker/")}


def test_a_spark_without_a_known_connector_is_told() -> None:
    with pytest.raises(LocalError, match=r"pyspark 3\.5 is installed, not one of 4\.0, 4\.1, 4\.2"):
        jars.artifacts_of("3.5")
