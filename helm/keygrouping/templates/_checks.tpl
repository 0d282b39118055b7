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
{{- if and (not .Values.secrets.generate) (include "keygrouping.unnamedSecrets" . | fromJsonArray) }}
{{- $missing := list }}
{{- range include "keygrouping.unnamedSecrets" . | fromJsonArray }}
{{- $keys := ternary (values (.keys | default dict) | sortAlpha | join ", ") (.key | default "") (hasKey . "keys") }}
{{- $missing = append $missing (printf "%s.existingSecret (keys: %s)" .value $keys) }}
{{- end }}
{{- fail (printf "secrets.generate=false needs the names of Secrets that you have made: %s" (join "; " $missing)) }}
{{- end }}
{{- range $part := list "router" "observer" }}
{{- $values := get $.Values $part }}
{{- if and (ne $values.settings.apiReads "open") (not $.Values.router.auth.enabled) }}
{{- fail (printf "%s.settings.apiReads=closed needs router.auth.enabled=true, as reads need a token then" $part) }}
{{- end }}
{{- end }}
{{- if and (ne .Values.router.settings.apiReads "open") (not .Values.router.auth.readerTokenKey) }}
{{- fail "router.settings.apiReads=closed needs router.auth.readerTokenKey, the key of one token for the observer and Spark's driver" }}
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
{{- include "keygrouping.checkNetworkPolicy" . }}
{{- include "keygrouping.checkImages" . }}
{{- end }}

{{/* What others must reach has to be said to the policies. */}}
{{- define "keygrouping.checkNetworkPolicy" -}}
{{- if .Values.networkPolicy.enabled }}
{{- range $part := list "router" "producer" "observer" }}
{{- $values := get $.Values $part }}
{{- $outside := or (dig "ingress" "enabled" false $values) (dig "httpRoute" "enabled" false $values) (ne $values.service.type "ClusterIP") }}
{{- if and (dig "enabled" true $values) $outside (not $.Values.networkPolicy.apiFrom) }}
{{- fail (printf "%s: an Ingress, a route or a service of type NodePort or LoadBalancer needs networkPolicy.apiFrom, from where its requests come, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}] or [{ipBlock: {cidr: 10.0.0.0/8}}]" $part) }}
{{- end }}
{{- end }}
{{- if and $.Values.kafka.bundled.enabled (or (dig "enabled" false .Values.router.keda) (dig "enabled" false .Values.worker.keda)) (not .Values.networkPolicy.kafkaFrom) }}
{{- fail "keda with a bundled Kafka needs networkPolicy.kafkaFrom, where KEDA's operator is, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: keda}}}]" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Nobody publishes the images, so a first installation has to say where they are. Only a cluster that is asked knows kinds:
what merely renders is not stopped. */}}
{{- define "keygrouping.checkImages" -}}
{{- $image := .Values.router.image }}
{{- $named := or .Values.image.registry (contains "/" $image.repository) $image.tag $image.digest (eq .Values.image.pullPolicy "Never") }}
{{- if and .Release.IsInstall (.Capabilities.APIVersions.Has "v1/Pod") (not $named) }}
{{- fail (printf "image.registry: no public registry has the images: build and push them with `make images push REGISTRY=registry.example.com/team` and install with --set image.registry=registry.example.com/team (or, if they are on the nodes, as after `make images` and `kind load docker-image keygrouping-router:%s ...`, with --set image.pullPolicy=Never)" .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Objects of operators need their definitions in the cluster. */}}
{{- define "keygrouping.checkKind" -}}
{{- if and .wanted (not (.root.Capabilities.APIVersions.Has (printf "%s/%s" .api .kind))) }}
{{- fail (printf "%s: the cluster knows no %s (%s): install %s first, or render with --api-versions %s/%s" .value .kind .api .who .api .kind) }}
{{- end }}
{{- end }}
