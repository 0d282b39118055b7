"""The page on apps on Kubernetes, as far as it goes without a cluster: its app runs, its image holds what it needs."""

from __future__ import annotations

import asyncio
import re
import tomllib
from pathlib import Path

import chart_files
import pytest
import yaml
from keygrouping.app import App, Event

from ..cluster.test_app import NAMES, PAGE, script
from .pages import ROOT, blocks

needs_helm = pytest.mark.skipif(chart_files.find_helm() is None, reason="helm is not installed")


def app_of_the_page() -> App:
    code, *_ = blocks(PAGE, "python")
    names: dict[str, object] = {}
    exec(compile(code.text, str(PAGE), "exec"), names)
    app = names["app"]
    assert isinstance(app, App)
    return app


def test_its_app_handles_an_event() -> None:
    app = app_of_the_page()
    tested = asyncio.run(app.test([Event.of("orders", {"amount": 3}, key="alice")]))
    assert [(output.topic, output.value) for output in tested.outputs] == [("receipts", b'{"paid":3}')]


def test_all_its_topics_are_made() -> None:
    (made,) = re.findall(r"for topic in (.+); do", "".join(block.text for block in blocks(PAGE, "sh")))
    app = app_of_the_page()
    outputs = asyncio.run(app.test([Event.of("orders", {"amount": 3})])).outputs
    named = {handler.topic.name for handler in app.handlers} | {output.topic for output in outputs}
    assert set(made.split()) == named | {app.settings().dead_letters}


def test_its_image_holds_all_that_is_copied_and_runs_as_a_user_with_a_number() -> None:
    (dockerfile,) = (block.text for block in blocks(PAGE, "dockerfile"))
    assert set(re.findall(r"^COPY (\S+) ", dockerfile, re.M)) == {"wheels", NAMES["python"]}
    assert re.search(r"^USER \d+$", dockerfile, re.M)
    assert "ARG PYTHON_IMAGE=" in dockerfile and "ARG INDEX_URL=" in dockerfile, "the same mirrors as the other images"
    wheels = re.findall(r"\./libs/\w+", next(blocks(PAGE, "sh")).text)
    packages = {tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]["name"] for path in wheels}
    assert packages == {"keygrouping-app", "keygrouping-kafka", "keygrouping"}


@needs_helm
@pytest.mark.parametrize("number", [0, 1])
def test_its_values_install_the_app_alone(number: int, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    block = list(blocks(PAGE, "yaml"))[number]
    file.write_text(block.text)
    objects = chart_files.objects(chart_files.render("billing", "shop", "--values", str(file)))
    (members,) = (
        o for o in objects if o["metadata"]["name"] == "billing-keygrouping-app" and o["kind"] == "StatefulSet"
    )
    (member,) = members["spec"]["template"]["spec"]["containers"]
    given = yaml.safe_load(block.text)["app"]
    assert member["image"] == "{repository}:{tag}".format(**given["image"])
    assert member["command"][-1] == given["module"] == "billing:app"
    parts = {o["metadata"]["labels"]["app.kubernetes.io/component"] for o in objects}
    assert parts <= {"app", "check", "test", "services", "kafka"}


@needs_helm
def test_its_backfill_is_a_job(tmp_path: Path) -> None:
    text = "".join(block.text for block in blocks(PAGE, "sh"))
    (assignments,) = re.findall(r"helm install backfill .* --set (\S+)", text)
    file = tmp_path / "values.yaml"
    file.write_text(next(blocks(PAGE, "yaml")).text)
    rendered = chart_files.render("backfill", "shop", "--values", str(file), "--set", assignments)
    jobs = [o for o in chart_files.objects(rendered) if o["kind"] == "Job" and "-app-" in o["metadata"]["name"]]
    assert len(jobs) == 1


def test_the_cluster_test_changes_all_that_has_to_be_changed() -> None:
    text = script(PAGE.parent / "other", "kg-1", "localhost:5000")
    assert "registry.example.com" not in text and "shop" not in text
    assert not re.search(r"(?<![\w/-])billing/", text)
