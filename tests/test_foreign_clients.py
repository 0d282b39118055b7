"""Clients that are not ours: what they write passes unchanged, and their tools see our groups."""

import os
import shutil
import subprocess
from collections.abc import Sequence

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.deployment import Deploy, Deployment, Shape
from keygrouping_local.java import find_java
from keygrouping_local.records import read_all, read_results

pytestmark = pytest.mark.kafka

JOB = '{"window": "1h", "aggregates": [{"name": "events", "op": "count"}]}'
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def run(command: Sequence[str | bytes], stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def java_tool(broker: EmbeddedBroker, tool: str, *arguments: str, stdin: bytes = b"") -> bytes:
    classpath = os.pathsep.join(map(str, broker.jars))
    server = ["--bootstrap-server", broker.bootstrap_servers]
    return run([str(find_java().path), "-cp", classpath, "-Xmx128m", tool, *server, *arguments], stdin)


async def routing(deploy: Deploy, *stages: str) -> Deployment:
    deployment = await deploy(JOB, Shape(partitions=1, max_workers=2))
    for stage in stages:
        deployment.start(stage)
    deployment.start("router-0", workers=2, grouping="pkg")
    return deployment


needs_kcat = pytest.mark.skipif(not shutil.which("kcat"), reason="kcat is not installed (Debian: apt-get install kcat)")


@needs_kcat
async def test_what_kcat_writes_kcat_reads_back_unchanged(deploy: Deploy, broker: EmbeddedBroker) -> None:
    deployment = await routing(deploy)
    settings = deployment.settings
    server = ["kcat", "-b", broker.bootstrap_servers, "-q"]
    written = {b"%d" % n: b'{"n": %d, "text": "\xc3\xa7"}' % n for n in range(500)}
    lines = b"".join(key + b"|" + value + b"\n" for key, value in written.items())
    run([*server, "-P", "-t", settings.events_topic, "-K", "|", "-H", "trace=a1", "-H", "empty="], lines)
    await deployment.until(deployment.is_routed)
    shape = "%k|%s|%T|%h\n"
    sent = run([*server, "-C", "-t", settings.events_topic, "-e", "-f", shape])
    routed = run([*server, "-C", "-t", settings.routed_topic, "-e", "-f", shape])
    assert sorted(routed.splitlines()) == sorted(sent.splitlines())
    assert len(routed.splitlines()) == len(written)
    assert b"trace=a1" in routed


@needs_kcat
async def test_a_header_name_that_is_not_utf8_stops_nothing(deploy: Deploy, broker: EmbeddedBroker) -> None:
    deployment = await routing(deploy, "worker-0", "aggregator-0")
    settings = deployment.settings
    write = ["kcat", "-b", broker.bootstrap_servers, "-q", "-P", "-t", settings.events_topic, "-K", "|"]
    for _ in range(2):
        run([*write, "-H", "trace=1"], b"good|1\ngood|2\n")
        run([*map(str.encode, write), b"-H", b"caf\xe9=1", b"-H", b"plain=2"], b"bad|3\n")
    run([*write, "-H", "trace=1"], b"good|4\n")
    comparison = await deployment.check()
    assert comparison.equal, comparison
    results = await read_results(settings)
    assert sum(result.events for result in results.values()) == 5
    dead = [record async for records in read_all(settings, settings.dead_letters_topic) for record in records]
    assert [(record.key, record.value) for record in dead] == [(b"bad", b"3")] * 2
    assert [name for name, _ in dead[0].headers[:2]] == ["caf\\udce9", "plain"]
    assert dict(dead[0].headers)["keygrouping-reason"] == b"invalid-header"


@pytest.mark.long
async def test_java_console_tools_write_read_and_see_the_groups(deploy: Deploy, broker: EmbeddedBroker) -> None:
    deployment = await routing(deploy, "worker-0", "aggregator-0")
    settings = deployment.settings
    properties = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    lines = b"".join(b"trace:a1\tkey-%d\tvalue %d\n" % (n % 7, n) for n in range(200))
    java_tool(broker, CONSOLE_PRODUCER, "--topic", settings.events_topic, *properties, stdin=lines)
    await deployment.until(deployment.is_routed)
    shown = [f"--formatter-property=print.{part}=true" for part in ("key", "headers")]
    count = [
        "--from-beginning",
        "--max-messages",
        "200",
        "--timeout-ms",
        "20000",
        "--isolation-level",
        "read_committed",
    ]
    read = java_tool(broker, CONSOLE_CONSUMER, "--topic", settings.routed_topic, *count, *shown)
    assert sorted(read.splitlines()) == sorted(lines.splitlines())
    for stage, topic in (("router", settings.events_topic), ("worker", settings.routed_topic)):
        told = java_tool(
            broker, CONSUMER_GROUPS, "--describe", "--timeout", "60000", "--group", settings.group(stage)
        ).decode()
        assert topic in told
    await deployment.finish()
    await deployment.until(deployment.is_final)
    told = java_tool(
        broker, CONSUMER_GROUPS, "--describe", "--timeout", "60000", "--group", settings.group("aggregator")
    ).decode()
    assert settings.partials_topic in told
