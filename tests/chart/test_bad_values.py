"""Every bad value is refused before anything starts: by the schema, by the chart, or by the programs themselves.

The Job that asks the programs is run here with the environment that the chart renders for it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chart_files
import pytest
import yaml
from chart_files import CHART
from keygrouping_service import check

Helm = Callable[..., subprocess.CompletedProcess[str]]

SCHEMA = [
    # the job
    ("job: {key: records}", "/job/key"),
    ("job: {key: {header: ''}}", "/job/key"),
    ("job: {key: {field: n}}", "/job/key"),
    ("job: {key: {field: a, header: b}}", "/job/key"),
    ("job: {key: {column: a}}", "/job/key"),
    ("job: {weight: 2}", "/job/weight"),
    ("job: {weight: {header: a}}", "/job/weight"),
    ("job: {weight: {field: 7}}", "/job/weight"),
    ("job: {time: now}", "/job/time"),
    ("job: {time: {field: t, unit: us}}", "/job/time"),
    ("job: {time: {unit: ms}}", "/job/time"),
    ("job: {window: 0s}", "/job/window"),
    ("job: {window: 0}", "/job/window"),
    ("job: {window: -1m}", "/job/window"),
    ("job: {window: 1.5m}", "/job/window"),
    ("job: {window: 1w}", "/job/window"),
    ("job: {window: null}", "missing property 'window'"),
    ("job: {window_offset: soon}", "/job/window_offset"),
    ("job: {windowOffset: 1s}", "windowOffset"),
    ("job: {lateness: -5}", "/job/lateness"),
    ("job: {max_future: for ever}", "/job/max_future"),
    ("job: {confirmations: 0}", "/job/confirmations"),
    ("job: {confirmations: 129}", "/job/confirmations"),
    ("job: {aggregates: []}", "/job/aggregates"),
    ("job: {aggregates: count}", "/job/aggregates"),
    ("job: {aggregates: [{op: count}]}", "missing property 'name'"),
    ("job: {aggregates: [{name: a}]}", "missing property 'op'"),
    ("job: {aggregates: [{name: a, op: sum}]}", "missing property 'field'"),
    ("job: {aggregates: [{name: a, op: sum, field: n}]}", "/job/aggregates/0/field"),
    ("job: {aggregates: [{name: a, op: sum, field: /}]}", "/job/aggregates/0/field"),
    ("job: {aggregates: [{name: a, op: sum, feild: x}]}", "feild"),
    ("job: {aggregates: [{name: a, op: median, field: x}]}", "/job/aggregates/0/op"),
    ("job: {aggregates: [{name: a, op: COUNT}]}", "/job/aggregates/0/op"),
    ("job: {aggregates: [{name: a-b, op: count}]}", "/job/aggregates/0/name"),
    ("job: {aggregates: [{name: 1st, op: count}]}", "/job/aggregates/0/name"),
    ("job: {aggregates: [{name: y, op: count}]}", "/job/aggregates/0/name"),
    ("job: {aggregates: [{name: a, op: vwap, field: price}]}", "missing property 'weight'"),
    ("job: {aggregates: [{name: a, op: 'my_prices:', field: x}]}", "/job/aggregates/0/op"),
    ("{runner: native, job: {aggregates: [{name: a, op: top-k, field: x, k: 0}]}}", "/job/aggregates/0/k"),
    ("{runner: native, job: {aggregates: [{name: a, op: top-k, field: x, k: ten}]}}", "/job/aggregates/0/k"),
    ("{runner: native, job: {aggregates: [{name: a, op: histogram, field: x, bins: 1}]}}", "/job/aggregates/0/bins"),
    (
        "{runner: native, job: {aggregates: [{name: a, op: histogram, field: x, quantiles: [2]}]}}",
        "/job/aggregates/0/quantiles",
    ),
    (
        "{runner: native, job: {aggregates: [{name: a, op: histogram, field: x, quantiles: ["
        + ", ".join(["0.5"] * 101)
        + "]}]}}",
        "/job/aggregates/0/quantiles",
    ),
    (
        "{runner: native, job: {aggregates: [{name: a, op: naive-bayes, field: x, features: [b, b]}]}}",
        "/job/aggregates/0/features",
    ),
    # the runner and the grouping
    ("runner: flink", "/runner"),
    ("runner: null", "missing property 'runner'"),
    ("router: {grouping: {name: levelfill}}", "/router/grouping/name"),
    ("router: {grouping: {name: Level-Fill}}", "/router/grouping/name"),
    ("router: {grouping: {name: off-greedy}}", "/router/grouping/name"),
    ("router: {grouping: {name: null}}", "missing property 'name'"),
    ("router: {grouping: {settings: {epsilon: 0.1}}}", "epsilon"),
    ("router: {grouping: {settings: {eps: 2}}}", "/router/grouping/settings/eps"),
    ("router: {grouping: {settings: {eps: small}}}", "/router/grouping/settings/eps"),
    ("router: {grouping: {settings: {split: some}}}", "/router/grouping/settings/split"),
    ("router: {grouping: {name: pkg, settings: {choices: 1}}}", "/router/grouping/settings/choices"),
    ("router: {grouping: {name: pkg, settings: {choices: 2.5}}}", "/router/grouping/settings/choices"),
    ("router: {grouping: {name: key, settings: {choices: 2}}}", "choices"),
    ("router: {grouping: {name: d-choices, settings: {threshold: 0}}}", "/router/grouping/settings/threshold"),
    # topics and names
    ("settings: {eventsTopic: my topic}", "/settings/eventsTopic"),
    ("settings: {eventsTopic: ''}", "/settings/eventsTopic"),
    ("settings: {eventsTopic: .}", "/settings/eventsTopic"),
    ("settings: {eventsTopic: ..}", "/settings/eventsTopic"),
    ("settings: {eventsTopic: a/b}", "/settings/eventsTopic"),
    ("settings: {eventsTopic: null}", "missing property 'eventsTopic'"),
    (f"settings: {{eventsTopic: {'a' * 250}}}", "/settings/eventsTopic"),
    ("settings: {eventTopic: a}", "eventTopic"),
    ("settings: {application: my application}", "/settings/application"),
    ("settings: {logLevel: LOUD}", "/settings/logLevel"),
    ("settings: {logFormat: yaml}", "/settings/logFormat"),
    ("settings: {otelEndpoint: collector}", "/settings/otelEndpoint"),
    ("settings: {httpBodyTimeout: 0}", "/settings/httpBodyTimeout"),
    ("settings: {beginAgain: events}", "/settings/beginAgain"),
    ("fullnameOverride: My_Release", "/fullnameOverride"),
    ("nameOverride: a b", "/nameOverride"),
    ("commonLabels: {team: a b}", "/commonLabels/team"),
    ("httpHosts: ['https://a.example.com/']", "/httpHosts/0"),
    ("observer: {settings: {auditTopic: a b}}", "/observer/settings/auditTopic"),
    ("spark: {settings: {progressTopic: a b}}", "/spark/settings/progressTopic"),
    # numbers of pods
    ("worker: {replicas: 0}", "/worker/replicas"),
    ("worker: {replicas: -1}", "/worker/replicas"),
    ("worker: {replicas: '4'}", "/worker/replicas"),
    ("worker: {replicas: 2.5}", "/worker/replicas"),
    ("worker: {maxReplicas: 0}", "/worker/maxReplicas"),
    ("worker: {maxReplicas: 20000}", "/worker/maxReplicas"),
    ("router: {replicas: many}", "/router/replicas"),
    ("router: {replicas: 0}", "/router/replicas"),
    ("producer: {replicas: 2}", "/producer/replicas"),
    ("aggregator: {replicas: 0}", "/aggregator/replicas"),
    ("router: {autoscaling: {enabled: true, minReplicas: 0}}", "/router/autoscaling/minReplicas"),
    ("router: {autoscaling: {enabled: yes please}}", "/router/autoscaling/enabled"),
    ("router: {keda: {enabled: true, lag: 1}}", "lag"),
    ("router: {keda: {enabled: true, lagThreshold: 0}}", "/router/keda/lagThreshold"),
    ("router: {keda: {enabled: true, allowIdleConsumers: true}}", "allowIdleConsumers"),
    ("router: {pdb: {enabled: true, minAvailable: 1}}", "minAvailable"),
    ("router: {pdb: {enabled: true, maxUnavailable: 0}}", "/router/pdb/maxUnavailable"),
    ("router: {pdb: {enabled: true, maxUnavailable: half}}", "/router/pdb/maxUnavailable"),
    # settings of the programs
    ("router: {settings: {delivery: twice}}", "/router/settings/delivery"),
    ("router: {settings: {linger: 11}}", "/router/settings/linger"),
    ("router: {settings: {linger: 50ms}}", "/router/settings/linger"),
    ("router: {settings: {intervall: 5}}", "intervall"),
    ("router: {settings: {interval: 0}}", "/router/settings/interval"),
    ("router: {settings: {interval: null}}", "missing property 'interval'"),
    ("router: {settings: {maxBatch: 0}}", "/router/settings/maxBatch"),
    ("router: {settings: {sharing: all}}", "/router/settings/sharing"),
    ("router: {settings: {apiReads: shut}}", "/router/settings/apiReads"),
    ("router: {settings: {compression: zip}}", "/router/settings/compression"),
    ("router: {settings: {transactionTimeout: 1000}}", "/router/settings/transactionTimeout"),
    ("router: {settings: {storePrefix: 'a b'}}", "/router/settings/storePrefix"),
    ("worker: {settings: {flushInterval: 0}}", "/worker/settings/flushInterval"),
    ("worker: {settings: {routedReaders: 'a, b'}}", "/worker/settings/routedReaders"),
    ("aggregator: {settings: {flushResults: 0}}", "/aggregator/settings/flushResults"),
    ("observer: {settings: {serviceRate: 0}}", "/observer/settings/serviceRate"),
    ("observer: {settings: {latencySamples: -1}}", "/observer/settings/latencySamples"),
    ("producer: {settings: {workload: flight}}", "/producer/settings/workload"),
    ("producer: {settings: {workload: country-skew-101}}", "/producer/settings/workload"),
    ("producer: {settings: {events: 0}}", "/producer/settings/events"),
    ("producer: {settings: {rate: -1}}", "/producer/settings/rate"),
    ("producer: {settings: {seed: -1}}", "/producer/settings/seed"),
    ("producer: {settings: {processes: 0}}", "/producer/settings/processes"),
    ("spark: {settings: {driverMemory: 1Gi}}", "/spark/settings/driverMemory"),
    ("spark: {settings: {shufflePartitions: 0}}", "/spark/settings/shufflePartitions"),
    ("spark: {settings: {sparkLogLevel: TRACE}}", "/spark/settings/sparkLogLevel"),
    ("spark: {mode: cluster}", "/spark/mode"),
    ("spark: {executor: {memory: 1Gi}}", "/spark/executor/memory"),
    ("spark: {executor: {cores: 0}}", "/spark/executor/cores"),
    ("spark: {executor: {cpuLimit: one}}", "/spark/executor/cpuLimit"),
    ("spark: {conf: {sql.shuffle.partitions: '8'}}", "/spark/conf"),
    ("spark: {conf: {spark.executor.instances: '8'}}", "/spark/conf"),
    ("spark: {conf: {spark.task.maxFailures: 8}}", "/spark/conf/spark.task.maxFailures"),
    ("spark: {checkpoint: {uri: bucket/folder}}", "/spark/checkpoint/uri"),
    ("spark: {checkpoint: {persistence: {accessModes: []}}}", "/spark/checkpoint/persistence/accessModes"),
    ("spark: {checkpoint: {persistence: {accessModes: [RWX]}}}", "/spark/checkpoint/persistence/accessModes/0"),
    ("load: {events: {enabled: true, settings: {rate: 0}}}", "/load/events/settings/rate"),
    ("load: {events: {enabled: true, settings: {workload: skewed}}}", "/load/events/settings/workload"),
    ("load: {http: {enabled: true, settings: {users: 0}}}", "/load/http/settings/users"),
    # servers
    ("kafka: {external: {bootstrapServers: broker}}", "/kafka/external/bootstrapServers"),
    ("kafka: {external: {bootstrapServers: 'a:9092,'}}", "/kafka/external/bootstrapServers"),
    ("kafka: {external: {securityProtocol: TLS}}", "/kafka/external/securityProtocol"),
    ("kafka: {external: {sasl: {mechanism: GSSAPI}}}", "/kafka/external/sasl/mechanism"),
    ("kafka: {external: {ports: [99999]}}", "/kafka/external/ports/0"),
    ("kafka: {bundled: {heap: 512m}}", "/kafka/bundled/heap"),
    ("kafka: {bundled: {persistence: {size: 8 GB}}}", "/kafka/bundled/persistence/size"),
    ("kafka: {bundled: {image: {digest: abc}}}", "/kafka/bundled/image/digest"),
    ("redis: {external: {url: 'http://redis'}}", "/redis/external/url"),
    ("redis: {auth: {existingSecret: My_Secret}}", "/redis/auth/existingSecret"),
    ("topics: {partitions: 0}", "/topics/partitions"),
    ("topics: {replication: 0}", "/topics/replication"),
    ("topics: {lettersBytes: 1024}", "/topics/lettersBytes"),
    # pods
    ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
    ("image: {registry: 'https://registry.example.com'}", "/image/registry"),
    ("image: {tag: 0.1}", "/image/tag"),
    ("imagePullSecrets: [registry]", "/imagePullSecrets/0"),
    ("router: {image: {repository: ''}}", "/router/image/repository"),
    ("router: {resources: {limits: {memory: 1 GB}}}", "/router/resources/limits/memory"),
    ("router: {resources: {limit: {memory: 1Gi}}}", "limit"),
    ("router: {service: {type: External}}", "/router/service/type"),
    ("router: {service: {port: 0}}", "/router/service/port"),
    ("router: {service: null}", "missing property 'service'"),
    ("router: {ingress: {enabled: true, host: a}}", "host"),
    ("router: {ingress: {enabled: true, hosts: [{host: 'http://a'}]}}", "/router/ingress/hosts/0/host"),
    ("router: {ingress: {enabled: true, hosts: [{host: a, path: b}]}}", "/router/ingress/hosts/0/path"),
    ("router: {httpRoute: {enabled: true, parentRefs: [{namespace: a}]}}", "/router/httpRoute/parentRefs/0"),
    ("defaults: {livenessProbe: {periodSeconds: often}}", "/defaults/livenessProbe/periodSeconds"),
    ("defaults: {livenessProbe: {period: 5}}", "period"),
    ("defaults: {preStopSeconds: -1}", "/defaults/preStopSeconds"),
    ("defaults: {securityContext: {readonlyRootFilesystem: true}}", "readonlyRootFilesystem"),
    ("defaults: {podSecurityContext: {runAsUser: root}}", "/defaults/podSecurityContext/runAsUser"),
    ("defaults: {tolerations: [{operator: In}]}", "/defaults/tolerations/0/operator"),
    ("defaults: {affinity: {nodeAffinty: {}}}", "nodeAffinty"),
    ("defaults: {nodeSelector: {a: 1}}", "/defaults/nodeSelector/a"),
    ("defaults: {extraEnv: [{name: A, value: 1}]}", "/defaults/extraEnv/0/value"),
    ("defaults: {extraVolumes: [{name: a}]}", "/defaults/extraVolumes/0"),
    ("defaults: {extraVolumeMounts: [{name: a, mountPath: b}]}", "/defaults/extraVolumeMounts/0/mountPath"),
    ("spark: {driver: {nodeSelectors: {}}}", "nodeSelectors"),
    ("metrics: {runbookUrl: wiki}", "/metrics/runbookUrl"),
    ("metrics: {serviceMonitor: {interval: 30}}", "/metrics/serviceMonitor/interval"),
    ("metrics: {serviceMonitor: {interval: half a minute}}", "/metrics/serviceMonitor/interval"),
    ("tests: {events: 0}", "/tests/events"),
    ("app: {module: billing}", "/app/module"),
    ("app: {module: ':app'}", "/app/module"),
    ("app: {image: {repository: Billing App}}", "/app/image/repository"),
    ("app: {replicas: 0}", "/app/replicas"),
    ("app: {settings: {sessionTimeout: 0}}", "/app/settings/sessionTimeout"),
    ("app: {settings: {maxEvents: many}}", "/app/settings/maxEvents"),
    ("app: {settings: {until: ''}}", "/app/settings/until"),
    ("app: {settings: {instanceId: a}}", "instanceId"),
    ("app: {topics: [a b]}", "/app/topics/0"),
    ("app: {egress: [{to: []}]}", "/app/egress/0"),
]

APP = "runner: app, app: {module: 'billing:app', image: {repository: mine, tag: '1'}"
"""Of a working app; the map is left open."""

CHART_ITSELF = [
    (
        "job: {aggregates: [{name: events, op: count}, {name: Events, op: sum, field: a}]}",
        "the name Events is used twice (upper and lower case",
    ),
    ("settings: {routedTopic: events}", "settings.eventsTopic and settings.routedTopic are both events"),
    ("settings: {lateTopic: dead-letters}", "are both dead-letters: each needs a topic of its own"),
    ("observer: {settings: {auditTopic: results}}", "observer.settings.auditTopic"),
    ("spark: {settings: {progressTopic: positions}}", "spark.settings.progressTopic"),
    ("router: {autoscaling: {enabled: true, minReplicas: 5}}", "router.autoscaling.minReplicas=5 is more than"),
    ("router: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}", "maxReplicas=2"),
    (
        "{runner: native, aggregator: {autoscaling: {enabled: true, minReplicas: 9}}}",
        "aggregator.autoscaling.minReplicas",
    ),
    ("{runner: native, worker: {keda: {enabled: true, minReplicas: 9, maxReplicas: 8}}}", "worker.keda.minReplicas=9"),
    ("{runner: native, worker: {keda: {enabled: true, maxReplicas: 17}}}", "worker.keda.maxReplicas is more than"),
    ("router: {pdb: {enabled: true}}", "router.pdb.enabled needs at least two replicas"),
    ("{redis: {bundled: {enabled: false}}, router: {replicas: 2}}", "several routers need a Redis"),
    ("kafka: {bundled: {enabled: false}}", "kafka: there is none"),
    ("kafka: {external: {bootstrapServers: 'a:9092'}}", "kafka: there are two"),
    ("redis: {external: {url: 'redis://a:6379/0'}}", "redis: there are two"),
    (
        "kafka: {bundled: {enabled: false}, external: {bootstrapServers: 'a:1', securityProtocol: SASL_SSL}}",
        "needs kafka.external.sasl.existingSecret",
    ),
    (
        "{runner: native, kafka: {bundled: {enabled: false}, external: {bootstrapServers: 'a:1', "
        "securityProtocol: SASL_SSL, sasl: {mechanism: OAUTHBEARER}}}}",
        "needs kafka.external.sasl.tokenProvider",
    ),
    (
        "kafka: {bundled: {enabled: false}, external: {bootstrapServers: 'a:1', securityProtocol: SASL_SSL, "
        "sasl: {mechanism: OAUTHBEARER, tokenProvider: 'keygrouping_msk_iam:token'}}}",
        "tokens of MSK IAM are not: set runner=native",
    ),
    ("spark: {settings: {driverMemory: 3g}}", "a heap of 3g and 512Mi besides are more than"),
    ("spark: {driver: {resources: {limits: {memory: 1Gi}}}}", "spark.driver.resources.limits.memory=1Gi"),
    ("spark: {settings: {driverMemory: 256m}}", "spark.settings.driverMemory=256m is less than the 512m"),
    ("spark: {executor: {memory: 128m}}", "spark.executor.memory=128m is less than the 512m"),
    ("spark: {settings: {javaOptions: -Xmx2g}}", "-Xmx is set by spark.settings.driverMemory alone"),
    ("spark: {executor: {cpuRequest: '2', cpuLimit: 500m}}", "cpuRequest=2 is more than cpuLimit=500m"),
    ("spark: {executor: {persistence: {enabled: true}}}", "needs spark.executor.persistence.storageClass"),
    ("kafka: {bundled: {heap: -Xmx1g}}", "kafka.bundled.heap: a heap of 1g"),
    ("router: {resources: {requests: {memory: 2Gi}}}", "router.resources: memory: the request 2Gi is more than"),
    ("router: {resources: {requests: {cpu: 1.5}, limits: {cpu: 1200m}}}", "router.resources: cpu: the request 1.5"),
    ("router: {terminationGracePeriodSeconds: 3}", "router: preStopSeconds leaves nothing"),
    ("defaults: {preStopSeconds: 60}", "preStopSeconds leaves nothing of terminationGracePeriodSeconds"),
    ("router: {auth: {enabled: false}, settings: {apiReads: closed}}", "router.settings.apiReads=closed needs"),
    ("router: {ingress: {enabled: true}}", "router.ingress.enabled needs router.ingress.hosts"),
    ("producer: {httpRoute: {enabled: true}}", "producer.httpRoute.enabled needs producer.httpRoute.parentRefs"),
    ("metrics: {prometheusRule: {enabled: true}}", "metrics.runbookUrl"),
    ("runner: app", "runner=app needs app.module, where the App is in your image"),
    ("runner: app", "runner=app needs app.image.repository, your own image"),
    ("{runner: app, app: {module: 'a:b', image: {repository: mine}}}", "app.image needs app.image.tag or"),
    (f"{{{APP}, pdb: {{enabled: true}}}}}}", "app.pdb.enabled needs at least two replicas"),
    (f"{{{APP}, keda: {{enabled: true}}}}}}", "app.keda.enabled needs app.settings.group and app.topics"),
    (f"{{{APP}, keda: {{enabled: true, minReplicas: 9}}}}}}", "app.keda.minReplicas=9 is more than maxReplicas=4"),
    (f"{{{APP}, keda: {{enabled: true}}}}}}", "keda with a bundled Kafka needs networkPolicy.kafkaFrom"),
    (
        f"{{{APP}, keda: {{enabled: true}}, autoscaling: {{enabled: true}}}}}}",
        "app: set either app.autoscaling.enabled",
    ),
    (f"{{{APP}, autoscaling: {{enabled: true}}, settings: {{until: latest}}}}}}", "app.settings.until makes a Job"),
    (f"{{{APP}, resources: {{requests: {{memory: 1Gi}}}}}}}}", "app.resources: memory: the request 1Gi"),
    (f"{{{APP}, preStopSeconds: 90}}}}", "app: preStopSeconds leaves nothing of terminationGracePeriodSeconds"),
    (f"{{{APP}}}, router: {{keda: {{enabled: true}}}}}}", "router.keda.enabled: runner=app installs no pipeline"),
    (f"{{{APP}}}, load: {{http: {{enabled: true}}}}}}", "load.http.enabled: runner=app installs no pipeline"),
    (
        f"{{{APP}}}, redis: {{bundled: {{enabled: false}}, external: {{url: 'redis://a:6379/0'}}}}}}",
        "redis.external.url: runner=app needs no Redis",
    ),
    (
        "{stages: combine}",
        "stages=combine needs runner=native, not spark: the Spark job reads what routers have routed",
    ),
    (
        "{runner: native, stages: combine, router: {settings: {until: latest, idleTimeout: 60}}}",
        "router.settings.idleTimeout: stages=combine has no router: set worker.settings.idleTimeout",
    ),
    ("{worker: {replicas: null}}", "worker.replicas=null needs stages=combine"),
    ("{runner: native, stages: combine, router: {pdb: {enabled: true}}}", "router.pdb.enabled: stages=combine has no"),
    ("{runner: native, app: {module: 'billing:app'}}", "app.module and app.image are not used with runner=native"),
    (
        f"{{{APP}, keda: {{enabled: true}}}}, "
        "kafka: {bundled: {enabled: false}, external: {bootstrapServers: 'a:1', securityProtocol: SASL_SSL, "
        "sasl: {mechanism: OAUTHBEARER, tokenProvider: 'iam:token'}}}}",
        "KEDA can't ask for these tokens",
    ),
    ("metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}", "everything is scraped twice"),
]

PROGRAMS = [
    (
        "{runner: native, job: {aggregates: [{name: a, op: top-k, field: x, k: 300}]}}",
        "KEYGROUPING_JOB",
    ),
    (
        "{router: {image: {repository: mine/router}}, job: {aggregates: [{name: a, op: spread, field: x}]}}",
        "unknown op 'spread'; choose from count",
    ),
    ("job: {aggregates: [{name: a, op: 'my_prices:GeometricMean', field: x}]}", "No module named 'my_prices'"),
    ("router: {grouping: {name: d-choices, settings: {shared: true}}}", "leaves the plan to the routers"),
    (
        "{runner: native, worker: {settings: {idleTimeout: 5}}}",
        "WORKER_IDLE_TIMEOUT: routers read the input",
    ),
    ("router: {grouping: {settings: {interval: 7200}}}", "interval must be from 0.1 to 3600 s"),
    ("router: {image: {repository: mine/router}, grouping: {name: mine}}", "unknown grouping 'mine'"),
    ("producer: {settings: {workload: file}}", "the workload 'file' needs a file and a key"),
    ("producer: {settings: {workload: flights, key: country}}", "flights have no key 'country'"),
    ("redis: {bundled: {enabled: false}, external: {url: 'redis+sentinel://a:1'}}", "KEYGROUPING_STORE_URL"),
    ("redis: {bundled: {enabled: false}, external: {url: 'redis://a:port/0'}}", "KEYGROUPING_STORE_URL"),
    ("load: {events: {enabled: true, settings: {workloadSettings: '{'}}}", "workload settings are no JSON"),
    ("load: {events: {enabled: true, settings: {workloadSettings: '[]'}}}", "workload settings must be a JSON object"),
    (
        "load: {http: {enabled: true, settings: {workload: zipf, workloadSettings: '{\"alpha\": 1}'}}}",
        "load.http: ",
    ),
]


_SAID = re.compile(r'"keygrouping.fault" (?:\(printf )?"([^"]+)"')


def test_every_refusal_of_the_chart_is_tested() -> None:
    tested = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for sentence in _SAID.findall((CHART / "templates" / "_checks.tpl").read_text()):
        if "the cluster knows no" not in sentence:  # Those have a test of their own.
            parts = re.split(r"%[sdv]|[,:]", sentence)
            assert any(part.strip()[:20] in tested for part in parts if len(part) > 12), sentence


def identified(cases: list[tuple[str, str]]) -> list[Any]:
    return [pytest.param(*case, id=case[0].replace(" ", "")[:80]) for case in cases]


@pytest.fixture
def rendered(run_helm: Helm, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """What `helm template` makes of values."""

    def render(values: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "values.yaml").write_text(values)
        known = [f"--api-versions={kind}" for kind in chart_files.OPERATORS]
        where = ("--kube-version", chart_files.KUBERNETES, "--namespace", "ns", *known)
        return run_helm("template", "r", str(CHART), *where, "--values", str(tmp_path / "values.yaml"))

    return render


def the_job(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The one that asks the programs."""
    (job,) = (o for o in objects if o["kind"] == "Job" and o["metadata"]["name"] == "r-keygrouping-check")
    return job


def asked(objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """Runs the containers of the Job that asks the programs, in order; gives the last exit code."""
    job = the_job(objects)
    pod = job["spec"]["template"]["spec"]
    code = 0
    for container in (*pod["initContainers"], *pod["containers"]):
        assert code == 0, "an init container that fails would hide what the others find"
        with monkeypatch.context() as patch:
            for entry in container["env"]:
                patch.setenv(entry["name"], entry.get("value", "r-router-0"))
            program, *arguments = container["command"][2:]
            assert program == "keygrouping_service.check"
            code = check.main([text.replace("/tmp/", f"{folder}/") for text in arguments])
    return code


@pytest.mark.parametrize(("values", "told"), identified(SCHEMA))
def test_the_schema_refuses(rendered: Callable[..., Any], values: str, told: str) -> None:
    done = rendered(values)
    assert done.returncode, "it was accepted"
    assert "don't meet the specifications of the schema" in done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(("values", "told"), identified(CHART_ITSELF))
def test_the_chart_refuses(rendered: Callable[..., Any], values: str, told: str) -> None:
    done = rendered(values)
    assert done.returncode, "it was accepted"
    assert "the values can't be used:" in done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(("values", "told"), identified(PROGRAMS))
def test_the_programs_refuse(
    rendered: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    values: str,
    told: str,
) -> None:
    done = rendered(values)
    assert done.returncode == 0, done.stderr
    assert asked(chart_files.objects(done.stdout), monkeypatch, tmp_path) == 2
    assert told in capsys.readouterr().out


def test_all_faults_are_told_at_once(
    rendered: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = rendered("{worker: {replicas: 0}, router: {settings: {linger: 11}}, job: {window: 0s}}")
    assert all(place in done.stderr for place in ("/worker/replicas", "/router/settings/linger", "/job/window"))
    done = rendered("{worker: {replicas: 17}, router: {pdb: {enabled: true}}, settings: {routedTopic: events}}")
    assert done.stderr.count("\n- ") == 3
    done = rendered("{producer: {settings: {workload: file}}, router: {grouping: {settings: {interval: 7200}}}}")
    assert asked(chart_files.objects(done.stdout), monkeypatch, tmp_path) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["producer", "router"]


@pytest.mark.parametrize("case", sorted(CHART.glob("ci/*-values.yaml")), ids=lambda path: path.stem)
def test_the_programs_take_our_values(
    rendered: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: Path,
) -> None:
    done = rendered(case.read_text())
    assert done.returncode == 0, done.stderr
    objects = chart_files.objects(done.stdout)
    if yaml.safe_load(case.read_text()).get("runner") == "app":
        return  # The app says so itself: test_app.py.
    if not any(o["kind"] == "Job" and o["metadata"]["name"] == "r-keygrouping-check" for o in objects):
        # Exporters alone: their command refuses what it can't use.
        assert not yaml.safe_load(case.read_text())["pipeline"]["enabled"]
        return
    assert asked(objects, monkeypatch, tmp_path) == 0, capsys.readouterr().out


def test_the_job_comes_first_and_says_why_it_failed(rendered: Callable[..., Any]) -> None:
    job = the_job(chart_files.objects(rendered("{}").stdout))
    notes = job["metadata"]["annotations"]
    assert notes["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert int(notes["helm.sh/hook-weight"]) < 0, "before the Job that makes the topics"
    assert notes["helm.sh/hook-output-log-policy"] == "hook-failed", "Helm prints the log, and leaves the Job there"
    assert "hook-failed" not in notes["helm.sh/hook-delete-policy"]
    assert job["spec"]["backoffLimit"] == 0, "wrong settings don't get better"
    pod = job["spec"]["template"]["spec"]
    (last,) = pod["containers"]
    assert last["terminationMessagePolicy"] == "FallbackToLogsOnError"
    mounted = {volume["name"] for volume in pod["volumes"]}
    assert mounted == {"tmp"}, "nothing of the release is there yet"
    assert yaml.safe_dump(pod).count("secret") == 0
