"""Laws of finding Java."""

from pathlib import Path

import pytest
from keygrouping_local.errors import LocalError
from keygrouping_local.java import Java, find_java, require_spark_java


def fake_java(folder: Path, version: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    return command


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    wanted, other = fake_java(tmp_path / "wanted", "21.0.2"), fake_java(tmp_path / "other", "17.0.1")
    java = find_java({"JAVA_HOME": str(tmp_path / "wanted"), "PATH": str(other.parent)})
    assert java == Java(wanted, 21)
    assert java.home == tmp_path / "wanted"


def test_without_java_home_the_path_decides(tmp_path: Path) -> None:
    command = fake_java(tmp_path, "17.0.9")
    assert find_java({"PATH": str(command.parent)}) == Java(command, 17)


def test_missing_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="Java is missing: install a JDK"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "feature"), [("11.0.2", 11), ("1.8.0_392", 8)])
def test_old_java_says_that_it_is_too_old(tmp_path: Path, version: str, feature: int) -> None:
    command = fake_java(tmp_path, version)
    with pytest.raises(LocalError, match=f"is Java {feature}, too old"):
        find_java({"PATH": str(command.parent)})


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="correct or unset JAVA_HOME"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    command = fake_java(tmp_path, "17")
    command.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(LocalError, match="does not run"):
        find_java({"PATH": str(command.parent)})


def test_spark_takes_17_and_21_and_refuses_others() -> None:
    for version in (17, 21):
        require_spark_java(Java(Path("java"), version))
    with pytest.raises(LocalError, match=r"Spark 4 does not support"):
        require_spark_java(Java(Path("java"), 25))
