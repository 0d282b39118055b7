{{/* What the schema can't say: values that don't fit together. All faults are told at once. */}}
{{- define "keygrouping.check" -}}
{{- with include "keygrouping.faults" . | trim }}
{{- fail (printf "the values can't be used:\n%s" .) }}
{{- end }}
{{- end }}

{{/* A fault: one sentence that names the value. */}}
{{- define "keygrouping.fault" }}
- {{ . }}
{{- end }}

{{- define "keygrouping.faults" -}}
{{- $kafka := .Values.kafka }}
{{- $redis := .Values.redis }}
{{- $native := eq .Values.runner "native" }}
{{- if and (not $kafka.bundled.enabled) (not $kafka.external.bootstrapServers) }}
{{- include "keygrouping.fault" "kafka: there is none: set kafka.external.bootstrapServers, or kafka.bundled.enabled=true" }}
{{- end }}
{{- if and $kafka.bundled.enabled $kafka.external.bootstrapServers }}
{{- include "keygrouping.fault" "kafka: there are two: set kafka.bundled.enabled=false, or leave kafka.external.bootstrapServers empty" }}
{{- end }}
{{- $sasl := and (not $kafka.bundled.enabled) (hasPrefix "SASL" $kafka.external.securityProtocol) }}
{{- $tokens := include "keygrouping.kafkaTokens" . }}
{{- if and $tokens (not $kafka.external.sasl.tokenProvider) }}
{{- include "keygrouping.fault" "kafka.external.sasl.mechanism=OAUTHBEARER needs kafka.external.sasl.tokenProvider, a module:function in your images" }}
{{- end }}
{{- if and $tokens (eq .Values.runner "spark") (hasPrefix "keygrouping_msk_iam:" $kafka.external.sasl.tokenProvider) }}
{{- include "keygrouping.fault" "kafka.external.sasl.tokenProvider: Spark's clients are Java's and take only JWTs, which tokens of MSK IAM are not: set runner=native, or log in with SCRAM" }}
{{- end }}
{{- $keda := or (dig "enabled" false .Values.router.keda) (dig "enabled" false .Values.worker.keda) (dig "enabled" false .Values.app.keda) }}
{{- if and $tokens $keda }}
{{- include "keygrouping.fault" "kafka.external.sasl.mechanism=OAUTHBEARER: KEDA can't ask for these tokens: set keda.enabled=false of router, worker and app" }}
{{- end }}
{{- if and $sasl (not $tokens) (not $kafka.external.sasl.existingSecret) }}
{{- include "keygrouping.fault" (printf "kafka.external.securityProtocol=%s needs kafka.external.sasl.existingSecret, a Secret with user name and password" $kafka.external.securityProtocol) }}
{{- end }}
{{- if and $kafka.external.tls.existingSecret (not (hasSuffix "SSL" $kafka.external.securityProtocol)) }}
{{- include "keygrouping.fault" (printf "kafka.external.tls.existingSecret is not used with kafka.external.securityProtocol=%s: set SSL or SASL_SSL" $kafka.external.securityProtocol) }}
{{- end }}
{{- if and $redis.bundled.enabled $redis.external.url }}
{{- include "keygrouping.fault" "redis: there are two: set redis.bundled.enabled=false, or leave redis.external.url empty" }}
{{- end }}
{{- $store := or $redis.bundled.enabled $redis.external.url }}
{{- $routers := int (.Values.router.replicas | default 2) }}
{{- $scaled := or (dig "enabled" false .Values.router.autoscaling) (dig "enabled" false .Values.router.keda) }}
{{- if and (include "keygrouping.routes" .) (not $store) (or (gt $routers 1) $scaled) }}
{{- include "keygrouping.fault" "router: several routers need a Redis to share their plan: set redis.bundled.enabled=true or redis.external.url, or router.replicas=1 without autoscaling" }}
{{- end }}
{{- if and (dig "enabled" false .Values.router.autoscaling) (dig "enabled" false .Values.router.keda) }}
{{- include "keygrouping.fault" "router: set either router.autoscaling.enabled or router.keda.enabled" }}
{{- end }}
{{- if include "keygrouping.routes" . }}
{{- if kindIs "invalid" .Values.worker.replicas }}
{{- include "keygrouping.fault" "worker.replicas=null needs stages=combine: it is the number of workers among which routers spread keys" }}
{{- end }}
{{- if gt (int .Values.worker.replicas) (int .Values.worker.maxReplicas) }}
{{- include "keygrouping.fault" (printf "worker.replicas=%d is more than worker.maxReplicas=%d, the partitions of the routed topic" (int .Values.worker.replicas) (int .Values.worker.maxReplicas)) }}
{{- end }}
{{- end }}
{{- if and (dig "enabled" false .Values.worker.keda) (not $native) }}
{{- include "keygrouping.fault" "worker.keda.enabled needs runner=native: Spark's executors follow worker.replicas" }}
{{- end }}
{{- $local := .Values.spark.executor.persistence }}
{{- if and (include "keygrouping.sparkOnKubernetes" .) $local.enabled (not $local.storageClass) }}
{{- include "keygrouping.fault" "spark.executor.persistence.enabled needs spark.executor.persistence.storageClass, one of `kubectl get storageclass`: Spark makes no claim without its name" }}
{{- end }}
{{- range $path := list "worker.pdb" "aggregator.pdb" "aggregator.autoscaling" }}
{{- $values := $.Values }}
{{- range splitList "." $path }}{{ $values = get $values . }}{{ end }}
{{- if and (eq $.Values.runner "spark") (dig "enabled" false $values) }}
{{- include "keygrouping.fault" (printf "%s.enabled needs runner=native: with Spark, the driver makes the executors and looks after them" $path) }}
{{- end }}
{{- end }}
{{- if and (include "keygrouping.routes" .) (dig "enabled" false .Values.worker.keda) (gt (int (dig "maxReplicas" 4 .Values.worker.keda)) (int .Values.worker.maxReplicas)) }}
{{- include "keygrouping.fault" (printf "worker.keda.maxReplicas is more than worker.maxReplicas=%d, the partitions of the routed topic" (int .Values.worker.maxReplicas)) }}
{{- end }}
{{- range $part := list "router" "worker" "aggregator" "app" }}
{{- $values := get $.Values $part }}
{{- range $way, $most := dict "autoscaling" 4 "keda" 4 }}
{{- $scaler := dig $way dict $values }}
{{- if and (dig "enabled" false $scaler) (gt (int (dig "minReplicas" 1 $scaler)) (int (dig "maxReplicas" $most $scaler))) }}
{{- include "keygrouping.fault" (printf "%s.%s.minReplicas=%d is more than maxReplicas=%d" $part $way (int (dig "minReplicas" 1 $scaler)) (int (dig "maxReplicas" $most $scaler))) }}
{{- end }}
{{- end }}
{{- $least := int ($values.replicas | default 2) }}
{{- if dig "autoscaling" "enabled" false $values }}{{- $least = int (dig "autoscaling" "minReplicas" 1 $values) }}{{- end }}
{{- if dig "keda" "enabled" false $values }}{{- $least = int (dig "keda" "minReplicas" 1 $values) }}{{- end }}
{{- if and $values.pdb.enabled (lt $least 2) }}
{{- include "keygrouping.fault" (printf "%s.pdb.enabled needs at least two replicas, there may be %d: a budget for one pod would block every drain of a node" $part $least) }}
{{- end }}
{{- end }}
{{- $metrics := .Values.metrics }}
{{- if and (or $metrics.prometheusRule.enabled $metrics.grafanaAlerts.enabled $metrics.dashboards.enabled) (not $metrics.runbookUrl) }}
{{- include "keygrouping.fault" "metrics.runbookUrl: alerts and dashboards link to runbooks: say where your team reads docs/runbooks.md (or runbooks.html of `make site`), such as https://wiki.example.com/keygrouping/runbooks" }}
{{- end }}
{{- if and (not .Values.secrets.generate) (include "keygrouping.unnamedSecrets" . | fromJsonArray) }}
{{- $missing := list }}
{{- range include "keygrouping.unnamedSecrets" . | fromJsonArray }}
{{- $keys := ternary (values (.keys | default dict) | sortAlpha | join ", ") (.key | default "") (hasKey . "keys") }}
{{- $missing = append $missing (printf "%s.existingSecret (keys: %s)" .value $keys) }}
{{- end }}
{{- include "keygrouping.fault" (printf "secrets.generate=false needs the names of Secrets that you have made: %s" (join "; " $missing)) }}
{{- end }}
{{- range $part := list "router" "observer" }}
{{- $values := get $.Values $part }}
{{- if and (ne $values.settings.apiReads "open") (not $.Values.router.auth.enabled) }}
{{- include "keygrouping.fault" (printf "%s.settings.apiReads=closed needs router.auth.enabled=true, as reads need a token then" $part) }}
{{- end }}
{{- end }}
{{- if and (ne .Values.router.settings.apiReads "open") (not .Values.router.auth.readerTokenKey) }}
{{- include "keygrouping.fault" "router.settings.apiReads=closed needs router.auth.readerTokenKey, the key of one token for the observer and Spark's driver" }}
{{- end }}
{{- if and (not .Values.pipeline.enabled) (not .Values.inspect.topics) (ne .Values.runner "app") }}
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
{{- include "keygrouping.fault" (printf "%s.ingress.enabled needs %s.ingress.hosts, such as [{host: %s.example.com}]" $part $part $part) }}
{{- end }}
{{- if and $values.httpRoute.enabled (not $values.httpRoute.parentRefs) }}
{{- include "keygrouping.fault" (printf "%s.httpRoute.enabled needs %s.httpRoute.parentRefs, such as [{name: GATEWAY}]" $part $part) }}
{{- end }}
{{- end }}
{{- $metrics := .Values.metrics }}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled }}
{{- include "keygrouping.fault" "metrics: set either metrics.serviceMonitor.enabled or metrics.podMonitor.enabled, or everything is scraped twice" }}
{{- end }}
{{- include "keygrouping.faultsOfCombining" . }}
{{- include "keygrouping.faultsOfApp" . }}
{{- include "keygrouping.faultsOfJob" . }}
{{- include "keygrouping.faultsOfTopics" . }}
{{- include "keygrouping.faultsOfMemory" . }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.serviceMonitor.enabled "value" "metrics.serviceMonitor.enabled" "api" "monitoring.coreos.com/v1" "kind" "ServiceMonitor" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.podMonitor.enabled "value" "metrics.podMonitor.enabled" "api" "monitoring.coreos.com/v1" "kind" "PodMonitor" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" $metrics.prometheusRule.enabled "value" "metrics.prometheusRule.enabled" "api" "monitoring.coreos.com/v1" "kind" "PrometheusRule" "who" "the Prometheus operator") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (dig "enabled" false .Values.router.keda) "value" "router.keda.enabled" "api" "keda.sh/v1alpha1" "kind" "ScaledObject" "who" "KEDA") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (dig "enabled" false .Values.worker.keda) "value" "worker.keda.enabled" "api" "keda.sh/v1alpha1" "kind" "ScaledObject" "who" "KEDA") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (dig "enabled" false .Values.app.keda) "value" "app.keda.enabled" "api" "keda.sh/v1alpha1" "kind" "ScaledObject" "who" "KEDA") }}
{{- include "keygrouping.checkKind" (dict "root" . "wanted" (and (eq .Values.runner "spark") (eq .Values.spark.mode "operator")) "value" "spark.mode=operator" "api" "sparkoperator.k8s.io/v1beta2" "kind" "SparkApplication" "who" "kubeflow's spark-operator") }}
{{- include "keygrouping.checkNetworkPolicy" . }}
{{- include "keygrouping.checkImages" . }}
{{- include "keygrouping.checkKafkaVersion" . }}
{{- end }}

{{/* Workers that read the events themselves have no router before them. */}}
{{- define "keygrouping.faultsOfCombining" -}}
{{- if eq .Values.stages "combine" }}
{{- if ne .Values.runner "native" }}
{{- include "keygrouping.fault" (printf "stages=combine needs runner=native, not %s: the Spark job reads what routers have routed" .Values.runner) }}
{{- end }}
{{- range $path := list "router.keda" "router.autoscaling" "router.pdb" "router.ingress" "router.httpRoute" "load.http" }}
{{- $values := $.Values }}
{{- range splitList "." $path }}{{ $values = get $values . }}{{ end }}
{{- if dig "enabled" false $values }}
{{- include "keygrouping.fault" (printf "%s.enabled: stages=combine has no router: leave it out, or set stages=route" $path) }}
{{- end }}
{{- end }}
{{- range $name, $usual := dict "start" "earliest" "until" "" "idleTimeout" "15" }}
{{- if ne (get $.Values.router.settings $name | default "" | toString) $usual }}
{{- include "keygrouping.fault" (printf "router.settings.%s: stages=combine has no router: set worker.settings.%s" $name $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* An app runs without a pipeline, and needs to know its image; a backfill ends, so nobody scales it. */}}
{{- define "keygrouping.faultsOfApp" -}}
{{- $app := .Values.app }}
{{- if eq .Values.runner "app" }}
{{- range $path := list "router.keda" "router.autoscaling" "router.pdb" "router.ingress" "router.httpRoute" "producer.ingress" "producer.httpRoute" "worker.keda" "worker.pdb" "aggregator.autoscaling" "aggregator.pdb" "load.events" "load.http" }}
{{- $values := $.Values }}
{{- range splitList "." $path }}{{ $values = get $values . }}{{ end }}
{{- if dig "enabled" false $values }}
{{- include "keygrouping.fault" (printf "%s.enabled: runner=app installs no pipeline: leave it out, or install the pipeline as a release of its own" $path) }}
{{- end }}
{{- end }}
{{- if .Values.redis.external.url }}
{{- include "keygrouping.fault" "redis.external.url: runner=app needs no Redis: leave it out; what handlers need goes into app.extraEnv" }}
{{- end }}
{{- if not $app.module }}
{{- include "keygrouping.fault" "runner=app needs app.module, where the App is in your image, such as billing:app" }}
{{- end }}
{{- if not $app.image.repository }}
{{- include "keygrouping.fault" "runner=app needs app.image.repository, your own image, such as registry.example.com/team/billing: see docs/howto/app-on-kubernetes.md" }}
{{- else if not (or $app.image.tag $app.image.digest) }}
{{- include "keygrouping.fault" "app.image needs app.image.tag or app.image.digest: the tag of our images is not that of yours" }}
{{- end }}
{{- $scaled := or (dig "enabled" false $app.autoscaling) (dig "enabled" false $app.keda) }}
{{- if and (dig "enabled" false $app.autoscaling) (dig "enabled" false $app.keda) }}
{{- include "keygrouping.fault" "app: set either app.autoscaling.enabled or app.keda.enabled" }}
{{- end }}
{{- if and (dig "enabled" false $app.keda) (not (and $app.settings.group $app.topics)) }}
{{- include "keygrouping.fault" "app.keda.enabled needs app.settings.group and app.topics, whose lag it looks at, such as billing and [orders]" }}
{{- end }}
{{- if and $app.settings.until (or $scaled (dig "enabled" false $app.pdb)) }}
{{- include "keygrouping.fault" "app.settings.until makes a Job, which ends: leave out app.autoscaling, app.keda and app.pdb" }}
{{- end }}
{{- else if or $app.module $app.image.repository }}
{{- include "keygrouping.fault" (printf "app.module and app.image are not used with runner=%s: set runner=app" .Values.runner) }}
{{- end }}
{{- end }}

{{/* What others must reach has to be said to the policies. */}}
{{- define "keygrouping.checkNetworkPolicy" -}}
{{- if .Values.networkPolicy.enabled }}
{{- range $part := list "router" "producer" "observer" }}
{{- $values := get $.Values $part }}
{{- $outside := or (dig "ingress" "enabled" false $values) (dig "httpRoute" "enabled" false $values) (ne $values.service.type "ClusterIP") }}
{{- if and (dig "enabled" true $values) $outside (not $.Values.networkPolicy.apiFrom) }}
{{- include "keygrouping.fault" (printf "%s: an Ingress, a route or a service of type NodePort or LoadBalancer needs networkPolicy.apiFrom, from where its requests come, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}] or [{ipBlock: {cidr: 10.0.0.0/8}}]" $part) }}
{{- end }}
{{- end }}
{{- if and $.Values.kafka.bundled.enabled (or (dig "enabled" false .Values.router.keda) (dig "enabled" false .Values.worker.keda) (dig "enabled" false .Values.app.keda)) (not .Values.networkPolicy.kafkaFrom) }}
{{- include "keygrouping.fault" "keda with a bundled Kafka needs networkPolicy.kafkaFrom, where KEDA's operator is, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: keda}}}]" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Nobody publishes the images, so a first installation has to say where they are. Only a cluster that is asked knows kinds:
what merely renders is not stopped. */}}
{{- define "keygrouping.checkImages" -}}
{{- $image := .Values.router.image }}
{{- $named := or .Values.image.registry (contains "/" $image.repository) $image.tag $image.digest (eq .Values.image.pullPolicy "Never") }}
{{- if and (include "keygrouping.pipeline" .) .Release.IsInstall (.Capabilities.APIVersions.Has "v1/Pod") (not $named) }}
{{- include "keygrouping.fault" (printf "image.registry: no public registry has the images: build and push them with `make images push REGISTRY=registry.example.com/team` and install with --set image.registry=registry.example.com/team (or, if they are on the nodes, as after `make images` and `kind load docker-image keygrouping-router:%s ...`, with --set image.pullPolicy=Never)" .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Kafka can't read a volume that a newer minor version has written. Which one runs is asked of the cluster: where it
can't be asked, and of an image without a version in its tag, nothing is known. */}}
{{- define "keygrouping.checkKafkaVersion" -}}
{{- $bundled := .Values.kafka.bundled }}
{{- $name := include "keygrouping.name" (dict "root" . "part" "kafka") }}
{{- $kept := (lookup "apps/v1" "StatefulSet" .Release.Namespace $name).spec | default dict }}
{{- if and $bundled.enabled $kept.volumeClaimTemplates }}
{{- $to := include "keygrouping.image" (dict "root" . "image" $bundled.image) }}
{{- $after := include "keygrouping.minorVersion" $to }}
{{- range $container := $kept.template.spec.containers }}
{{- $before := include "keygrouping.minorVersion" $container.image }}
{{- if and (eq $container.name "kafka") $before $after (semverCompare (printf ">%s" $after) $before) }}
{{- include "keygrouping.fault" (printf "kafka.bundled.image: %s can't read the volume of the Kafka that runs, %s: set kafka.bundled.image.tag=%s; or uninstall, delete the claims of Kafka and Redis, with which all topics go, and install again" $to $container.image (regexFind "[^:]+$" $container.image)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The version in an image's tag without its last number, such as 4.2.0 of apache/kafka:4.2.2; nothing if there is none. */}}
{{- define "keygrouping.minorVersion" -}}
{{- with regexFind ":v?[0-9]+[.][0-9]+[^/]*$" . }}{{ regexFind "[0-9]+[.][0-9]+" . }}.0{{ end }}
{{- end }}

{{/* Objects of operators need their definitions in the cluster. */}}
{{- define "keygrouping.checkKind" -}}
{{- if and .wanted (not (.root.Capabilities.APIVersions.Has (printf "%s/%s" .api .kind))) }}
{{- include "keygrouping.fault" (printf "%s: the cluster knows no %s (%s): install %s first, or render with --api-versions %s/%s" .value .kind .api .who .api .kind) }}
{{- end }}
{{- end }}

{{/* Names of aggregates that are used twice; upper and lower case are the same. */}}
{{- define "keygrouping.faultsOfJob" -}}
{{- $seen := dict }}
{{- range .Values.job.aggregates }}
{{- $name := lower (toString .name) }}
{{- if hasKey $seen $name }}
{{- include "keygrouping.fault" (printf "job.aggregates: the name %s is used twice (upper and lower case are the same)" .name) }}
{{- end }}
{{- $_ := set $seen $name true }}
{{- end }}
{{- end }}

{{/* Topics that have two meanings. */}}
{{- define "keygrouping.faultsOfTopics" -}}
{{- $seen := dict }}
{{- range $path, $settings := dict "settings" .Values.settings "observer.settings" .Values.observer.settings "spark.settings" .Values.spark.settings }}
{{- range $name, $topic := $settings }}
{{- if and $topic (hasSuffix "Topic" $name) }}
{{- with get $seen $topic }}
{{- include "keygrouping.fault" (printf "%s and %s.%s are both %s: each needs a topic of its own" . $path $name $topic) }}
{{- end }}
{{- $_ := set $seen $topic (printf "%s.%s" $path $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Resources that contradict themselves, and Java's heaps that don't fit into them. */}}
{{- define "keygrouping.faultsOfMemory" -}}
{{- range $path := list "check" "topics" "kafka.bundled" "redis.bundled" "producer" "router" "worker" "aggregator" "observer" "app" "spark.driver" "load.events" "load.http" }}
{{- $values := $.Values }}
{{- range splitList "." $path }}{{ $values = get $values . }}{{ end }}
{{- $limits := dig "limits" dict ($values.resources | default dict) | default dict }}
{{- range $resource, $request := dig "requests" dict ($values.resources | default dict) | default dict }}
{{- $limit := get $limits $resource }}
{{- if and $request $limit (gt (include "keygrouping.number" $request | float64) (include "keygrouping.number" $limit | float64)) }}
{{- include "keygrouping.fault" (printf "%s.resources: %s: the request %v is more than the limit %v" $path $resource $request $limit) }}
{{- end }}
{{- end }}
{{- if ge (int (dig "preStopSeconds" $.Values.defaults.preStopSeconds $values)) (int (dig "terminationGracePeriodSeconds" $.Values.defaults.terminationGracePeriodSeconds $values)) }}
{{- include "keygrouping.fault" (printf "%s: preStopSeconds leaves nothing of terminationGracePeriodSeconds: pods would be killed instead of stopped" $path) }}
{{- end }}
{{- end }}
{{- $spark := .Values.spark }}
{{- $limit := dig "resources" "limits" "memory" "" $spark.driver }}
{{- include "keygrouping.faultOfHeap" (dict "heap" $spark.settings.driverMemory "name" "spark.settings.driverMemory" "limit" $limit "limitName" "spark.driver.resources.limits.memory" "besides" "512Mi") }}
{{- include "keygrouping.faultOfHeap" (dict "heap" (regexFind "[0-9]+[mg]" (regexFind "-Xmx[0-9]+[mg]" .Values.kafka.bundled.heap)) "name" "kafka.bundled.heap" "limit" (dig "limits" "memory" "" .Values.kafka.bundled.resources) "limitName" "kafka.bundled.resources.limits.memory" "besides" "256Mi") }}
{{- range $name, $heap := dict "spark.settings.driverMemory" $spark.settings.driverMemory "spark.executor.memory" $spark.executor.memory }}
{{- if lt (include "keygrouping.javaNumber" $heap | float64) (include "keygrouping.number" "512Mi" | float64) }}
{{- include "keygrouping.fault" (printf "%s=%s is less than the 512m that Spark needs" $name $heap) }}
{{- end }}
{{- end }}
{{- if contains "-Xmx" $spark.settings.javaOptions }}
{{- include "keygrouping.fault" "spark.settings.javaOptions: -Xmx is set by spark.settings.driverMemory alone" }}
{{- end }}
{{- if and $spark.executor.cpuLimit (gt (include "keygrouping.number" $spark.executor.cpuRequest | float64) (include "keygrouping.number" $spark.executor.cpuLimit | float64)) }}
{{- include "keygrouping.fault" (printf "spark.executor.cpuRequest=%v is more than cpuLimit=%v" $spark.executor.cpuRequest $spark.executor.cpuLimit) }}
{{- end }}
{{- end }}

{{/* A heap for whose process the pod has too little memory; "besides": what the process needs at least beside it. */}}
{{- define "keygrouping.faultOfHeap" -}}
{{- if and .limit (gt (addf (include "keygrouping.javaNumber" .heap | float64) (include "keygrouping.number" .besides | float64)) (include "keygrouping.number" .limit | float64)) }}
{{- include "keygrouping.fault" (printf "%s: a heap of %s and %s besides are more than %s=%v: the pod would be killed" .name .heap .besides .limitName .limit) }}
{{- end }}
{{- end }}

{{/* A quantity of Kubernetes (0.5, 200m, 1Gi) as a number; one of Java (512m, 1g) likewise. */}}
{{- define "keygrouping.number" -}}
{{- $text := include "keygrouping.text" . -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- mulf (float64 $number) (get $factors (trimPrefix $number $text)) -}}
{{- end }}

{{- define "keygrouping.javaNumber" -}}
{{- include "keygrouping.number" (printf "%si" (upper .) | replace "GI" "Gi" | replace "MI" "Mi") -}}
{{- end }}
