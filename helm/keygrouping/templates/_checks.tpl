{{/* What the schema can't say: values that don't fit together. Each fault is one sentence that names the value. */}}
{{- define "keygrouping.check" -}}
{{- $kafka := .Values.kafka }}
{{- $redis := .Values.redis }}
{{- $native := eq .Values.runner "native" }}
{{- if and (not $kafka.bundled.enabled) (not $kafka.external.bootstrapServers) }}
{{- fail "kafka: there is none: set kafka.external.bootstrapServers, or kafka.bundled.enabled=true" }}
{{- end }}
{{- if and $kafka.bundled.enabled $kafka.external.bootstrapServers }}
{{- fail "kafka: there are two: set kafka.bundled.enabled=false, or leave kafka.external.bootstrapServers empty" }}
{{- end }}
{{- if and (not $kafka.bundled.enabled) (hasPrefix "SASL" $kafka.external.securityProtocol) (not $kafka.external.sasl.existingSecret) }}
{{- fail (printf "kafka.external.securityProtocol=%s needs kafka.external.sasl.existingSecret, a Secret with user name and password" $kafka.external.securityProtocol) }}
{{- end }}
{{- if and $kafka.external.tls.existingSecret (not (hasSuffix "SSL" $kafka.external.securityProtocol)) }}
{{- fail (printf "kafka.external.tls.existingSecret is not used with kafka.external.securityProtocol=%s: set SSL or SASL_SSL" $kafka.external.securityProtocol) }}
{{- end }}
{{- if and $redis.bundled.enabled $redis.external.url }}
{{- fail "redis: there are two: set redis.bundled.enabled=false, or leave redis.external.url empty" }}
{{- end }}
{{- $store := or $redis.bundled.enabled $redis.external.url }}
{{- $routers := int .Values.router.replicas }}
{{- $scaled := or (dig "enabled" false .Values.router.autoscaling) (dig "enabled" false .Values.router.keda) }}
{{- if and (not $store) (or (gt $routers 1) $scaled) }}
{{- fail "router: several routers need a Redis to share their plan: set redis.bundled.enabled=true or redis.external.url, or router.replicas=1 without autoscaling" }}
{{- end }}
{{- if and (dig "enabled" false .Values.router.autoscaling) (dig "enabled" false .Values.router.keda) }}
{{- fail "router: set either router.autoscaling.enabled or router.keda.enabled" }}
{{- end }}
{{- if gt (int .Values.worker.replicas) (int .Values.worker.maxReplicas) }}
{{- fail (printf "worker.replicas=%d is more than worker.maxReplicas=%d, the partitions of the routed topic" (int .Values.worker.replicas) (int .Values.worker.maxReplicas)) }}
{{- end }}
{{- if and (dig "enabled" false .Values.worker.keda) (not $native) }}
{{- fail "worker.keda.enabled needs runner=native: Spark's executors follow worker.replicas" }}
{{- end }}
{{- if and (dig "enabled" false .Values.worker.keda) (gt (int (dig "maxReplicas" 4 .Values.worker.keda)) (int .Values.worker.maxReplicas)) }}
{{- fail (printf "worker.keda.maxReplicas is more than worker.maxReplicas=%d, the partitions of the routed topic" (int .Values.worker.maxReplicas)) }}
{{- end }}
{{- range $part := list "router" "worker" "aggregator" }}
{{- $values := get $.Values $part }}
{{- $least := int $values.replicas }}
{{- if dig "autoscaling" "enabled" false $values }}{{- $least = int (dig "autoscaling" "minReplicas" 1 $values) }}{{- end }}
{{- if dig "keda" "enabled" false $values }}{{- $least = int (dig "keda" "minReplicas" 1 $values) }}{{- end }}
{{- if and $values.pdb.enabled (lt $least 2) }}
{{- fail (printf "%s.pdb.enabled needs at least two replicas, there may be %d: a budget for one pod would block every drain of a node" $part $least) }}
{{- end }}
{{- end }}
{{- $metrics := .Values.metrics }}
{{- if and (or $metrics.prometheusRule.enabled $metrics.grafanaAlerts.enabled $metrics.dashboards.enabled) (not $metrics.runbookUrl) }}
{{- fail "metrics.runbookUrl: alerts and dashboards link to runbooks: say where your team reads docs/runbooks.md (or runbooks.html of `make site`), such as https://wiki.example.com/keygrouping/runbooks" }}
{{- end }}
{{- if and (ne .Values.router.settings.apiReads "open") (not .Values.router.auth.existingSecret) }}
{{- fail "router.settings.apiReads=closed needs router.auth.existingSecret, a Secret with tokens" }}
{{- end }}
{{- if and (ne .Values.observer.settings.apiReads "open") .Values.observer.enabled (not .Values.router.auth.existingSecret) }}
{{- fail "observer.settings.apiReads=closed needs router.auth.existingSecret, a Secret with tokens" }}
{{- end }}
{{- if and (ne .Values.router.settings.apiReads "open") .Values.observer.enabled (not .Values.router.auth.readerTokenKey) }}
{{- fail "router.settings.apiReads=closed needs router.auth.readerTokenKey, the key of one token for the observer" }}
{{- end }}
{{- if and (not .Values.pipeline.enabled) (not .Values.inspect.topics) }}
{{- fail "pipeline.enabled=false leaves nothing to install: name topics to watch in inspect.topics, such as [{topic: orders}]" }}
{{- end }}
{{- $parts := dict }}
{{- range $topic := .Values.inspect.topics }}
{{- $part := include "keygrouping.inspectPart" $topic }}
{{- if or (not (regexMatch "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" $part)) (gt (len $part) 40) }}
{{- fail (printf "inspect.topics: topic %s makes no name for Kubernetes: give it a name of small letters, digits and hyphens, at most 30, such as {topic: %s, name: orders}" $topic.topic $topic.topic) }}
{{- end }}
{{- if hasKey $parts $part }}
{{- fail (printf "inspect.topics: %s and %s have the same name %s: give one of them another, as name" (get $parts $part) $topic.topic (trimPrefix "inspect-" $part)) }}
{{- end }}
{{- $_ := set $parts $part $topic.topic }}
{{- if and $topic.hashKeys $topic.keyLabels }}
{{- fail (printf "inspect.topics: topic %s: set either hashKeys or keyLabels" $topic.topic) }}
{{- end }}
{{- end }}
{{- range $part := list "router" "producer" }}
{{- $values := get $.Values $part }}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) }}
{{- fail (printf "%s.ingress.enabled needs %s.ingress.hosts, such as [{host: %s.example.com}]" $part $part $part) }}
{{- end }}
{{- if and $values.httpRoute.enabled (not $values.httpRoute.parentRefs) }}
{{- fail (printf "%s.httpRoute.enabled needs %s.httpRoute.parentRefs, such as [{name: GATEWAY}]" $part $part) }}
{{- end }}
{{- end }}
{{- if and .Values.load.http.enabled (ne .Values.router.settings.apiReads "open") (not .Values.router.auth.readerTokenKey) }}
{{- fail "load.http.enabled with router.settings.apiReads=closed needs router.auth.readerTokenKey, the key of one token for it" }}
{{- end }}
{{- $metrics := .Values.metrics }}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled }}
{{- fail "metrics: set either metrics.serviceMonitor.enabled or metrics.podMonitor.enabled, or everything is scraped twice" }}
{{- end }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.serviceMonitor.enabled "value" "metrics.serviceMonitor.enabled" "api" "monitoring.coreos.com/v1" "kind" "ServiceMonitor" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.podMonitor.enabled "value" "metrics.podMonitor.enabled" "api" "monitoring.coreos.com/v1" "kind" "PodMonitor" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.prometheusRule.enabled "value" "metrics.prometheusRule.enabled" "api" "monitoring.coreos.com/v1" "kind" "PrometheusRule" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (dig "enabled" false .Values.router.keda) "value" "router.keda.enabled" "api" "keda.sh/v1alpha1" "kind" "ScaledObject" "who" "KEDA") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (dig "enabled" false .Values.worker.keda) "value" "worker.keda.enabled" "api" "keda.sh/v1alpha1" "kind" "ScaledObject" "who" "KEDA") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (and (not $native) (eq .Values.spark.mode "operator")) "value" "spark.mode=operator" "api" "sparkoperator.k8s.io/v1beta2" "kind" "SparkApplication" "who" "kubeflow's spark-operator") }}
{{- end }}

{{/* Objects of operators need their definitions in the cluster. */}}
{{- define "keygrouping.checkKind" -}}
{{- if and .wanted (not (.root.Capabilities.APIVersions.Has (printf "%s/%s" .api .kind))) }}
{{- fail (printf "%s: the cluster knows no %s (%s): install %s first, or render with --api-versions %s/%s" .value .kind .api .who .api .kind) }}
{{- end }}
{{- end }}
