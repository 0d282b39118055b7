{{/* Objects that several parts have alike, of (dict "root" $ "part" "router" "values" .Values.router). */}}

{{/* The number of pods, unless an autoscaler or somebody else sets it. */}}
{{- define "keygrouping.replicas" -}}
{{- if not (or (kindIs "invalid" .values.replicas) (dig "autoscaling" "enabled" false .values) (dig "keda" "enabled" false .values)) }}
replicas: {{ .values.replicas }}
{{- end }}
{{- end }}

{{- define "keygrouping.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "keygrouping.metadata" (merge (dict "annotations" .values.service.annotations "labels" (dict "keygrouping/scrape" "true")) .) | nindent 2 }}
spec:
  type: {{ .values.service.type }}
  selector:
    {{- include "keygrouping.selectorLabels" . | nindent 4 }}
  ports:
    - name: http
      port: {{ .values.service.port }}
      targetPort: http
{{- end }}

{{/* A service that only gives pods their names and Prometheus their addresses; "ports" (text) for more of them. */}}
{{- define "keygrouping.headlessService" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "keygrouping.metadata" (merge (dict "labels" (dict "keygrouping/scrape" "true")) .) | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "keygrouping.selectorLabels" . | nindent 4 }}
  ports:
    - name: http
      port: 8080
      targetPort: http
    {{- with .ports }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "keygrouping.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "keygrouping.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ dig "maxUnavailable" 1 .values.pdb }}
  selector:
    matchLabels:
      {{- include "keygrouping.selectorLabels" . | nindent 6 }}
{{- end }}

{{/* Scaling by CPU; also: "kind", if it is no Deployment. */}}
{{- define "keygrouping.hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "keygrouping.metadata" . | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind | default "Deployment" }}
    name: {{ include "keygrouping.name" . }}
  minReplicas: {{ dig "minReplicas" 1 .values.autoscaling }}
  maxReplicas: {{ dig "maxReplicas" 4 .values.autoscaling }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ dig "targetCPUUtilizationPercentage" 75 .values.autoscaling }}
{{- end }}

{{/* Scaling by the lag of a group on topics; also: "kind", and "group" and "topics" or those of a "stage" with its "topic". */}}
{{- define "keygrouping.scaledObject" -}}
{{- $keda := .values.keda -}}
{{- $external := .root.Values.kafka.external -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "keygrouping.metadata" (merge (dict "labels" ($keda.labels | default dict)) .) | nindent 2 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: {{ .kind }}
    name: {{ include "keygrouping.name" . }}
  minReplicaCount: {{ dig "minReplicas" 1 $keda }}
  maxReplicaCount: {{ .most | default (dig "maxReplicas" 4 $keda) }}
  pollingInterval: {{ dig "pollingInterval" 15 $keda }}
  cooldownPeriod: {{ dig "cooldownPeriod" 300 $keda }}
  triggers:
    {{- range $topic := .topics | default (list .topic) }}
    - type: kafka
      metadata:
        bootstrapServers: {{ include "keygrouping.bootstrapServers" $.root | quote }}
        consumerGroup: {{ $.group | default (printf "%s-%s" $.root.Values.settings.application $.stage) }}
        topic: {{ $topic }}
        lagThreshold: {{ dig "lagThreshold" 10000 $keda | int64 | quote }}
        # A group that has not committed yet counts as caught up, not as one that must read all.
        offsetResetPolicy: latest
        {{- if $keda.allowIdleConsumers }}
        allowIdleConsumers: "true"
        {{- end }}
        {{- if not $.root.Values.kafka.bundled.enabled }}
        {{- if hasPrefix "SASL" $external.securityProtocol }}
        sasl: {{ get (dict "PLAIN" "plaintext" "SCRAM-SHA-256" "scram_sha256" "SCRAM-SHA-512" "scram_sha512") $external.sasl.mechanism }}
        {{- with $external.sasl.username }}
        username: {{ . | quote }}
        {{- end }}
        {{- end }}
        {{- if hasSuffix "SSL" $external.securityProtocol }}
        tls: enable
        {{- end }}
        {{- end }}
      {{- if include "keygrouping.needsKedaAuthentication" $.root }}
      authenticationRef:
        name: {{ include "keygrouping.name" (dict "root" $.root "part" "kafka") }}
      {{- end }}
    {{- end }}
{{- end }}

{{- define "keygrouping.needsKedaAuthentication" -}}
{{- if and (not .Values.kafka.bundled.enabled) (ne .Values.kafka.external.securityProtocol "PLAINTEXT") }}true{{ end }}
{{- end }}

{{- define "keygrouping.ingress" -}}
{{- $ingress := .values.ingress -}}
{{- $name := include "keygrouping.name" . -}}
{{- $port := .values.service.port -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  {{- include "keygrouping.metadata" (merge (dict "annotations" ($ingress.annotations | default dict)) .) | nindent 2 }}
spec:
  {{- with $ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  rules:
    {{- range $ingress.hosts }}
    - host: {{ .host | quote }}
      http:
        paths:
          - path: {{ .path | default "/" }}
            pathType: Prefix
            backend:
              service:
                name: {{ $name }}
                port:
                  number: {{ $port }}
    {{- end }}
  {{- with $ingress.tls }}
  tls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "keygrouping.httpRoute" -}}
{{- $route := .values.httpRoute -}}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "keygrouping.metadata" . | nindent 2 }}
spec:
  parentRefs:
    {{- toYaml $route.parentRefs | nindent 4 }}
  {{- with $route.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "keygrouping.name" . }}
          port: {{ .values.service.port }}
{{- end }}

{{/* A claim that outlives the release: (dict "root" $ "part" "spark" "persistence" ...). */}}
{{- define "keygrouping.claimSpec" -}}
accessModes: {{ .accessModes | default (list "ReadWriteOnce") | toJson }}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end }}

{{/* Who may talk to a part, and to whom it may: also "api" (whether others call its HTTP interface), "from" (own parts
that do, beside the tests), "closed" (it has no HTTP), "to" (kafka, redis, router, producer), "ingress" and "egress" (text:
more rules). Probes come from the node, which no policy keeps out. */}}
{{- define "keygrouping.networkPolicy" -}}
{{- $root := .root -}}
{{- $policy := $root.Values.networkPolicy -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "keygrouping.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "keygrouping.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- if or .ingress (not .closed) }}
  ingress:
    {{- if not .closed }}
    - from:
        {{- include "keygrouping.peer" (dict "root" $root "parts" (append (.from | default list) "test")) | trim | nindent 8 }}
        {{- with concat (ternary $policy.apiFrom list (.api | default false)) $policy.metricsFrom | uniq }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - port: 8080
    {{- end }}
    {{- with .ingress }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- else }}
  ingress: []
  {{- end }}
  egress:
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
    {{- range $target := .to }}
    {{- include "keygrouping.egressTo" (dict "root" $root "target" $target) | trim | nindent 4 }}
    {{- end }}
    {{- if $root.Values.settings.otelEndpoint }}
    {{- with (urlParse $root.Values.settings.otelEndpoint).host }}
    {{- $port := ternary (regexReplaceAll "^.*:" . "") "4318" (contains ":" .) }}
    {{- include "keygrouping.egressOut" (dict "root" $root "ports" (list $port)) | trim | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with .egress }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The release's own pods of some parts. */}}
{{- define "keygrouping.peer" -}}
{{- range $part := .parts }}
- podSelector:
    matchLabels:
      {{- include "keygrouping.selectorLabels" (dict "root" $.root "part" $part) | nindent 6 }}
{{- end }}
{{- end }}

{{- define "keygrouping.egressTo" -}}
{{- $ports := dict "kafka" 9092 "redis" 6379 "router" 8080 "producer" 8080 -}}
{{- $server := get .root.Values .target -}}
{{- if dig "bundled" "enabled" true $server }}
- to:
    {{- include "keygrouping.peer" (dict "root" .root "parts" (list .target)) | trim | nindent 4 }}
  ports:
    - port: {{ get $ports .target }}
{{- else if or (eq .target "kafka") $server.external.url }}
{{- $known := include (printf "keygrouping.%sPorts" .target) .root | splitList "\n" }}
{{ include "keygrouping.egressOut" (dict "root" .root "ports" (concat $known $server.external.ports | toStrings | uniq)) }}
{{- end }}
{{- end }}

{{/* The ports of the external brokers that are named, one a line. */}}
{{- define "keygrouping.kafkaPorts" -}}
{{- range $number, $server := splitList "," .Values.kafka.external.bootstrapServers }}
{{- if $number }}{{ "\n" }}{{ end }}{{ trim $server | regexFind "[0-9]+$" }}
{{- end }}
{{- end }}

{{/* The ports of the external Redis' URL, one a line; of servers behind sentinels it tells nothing. */}}
{{- define "keygrouping.redisPorts" -}}
{{- $url := .Values.redis.external.url -}}
{{- $default := ternary "26379" "6379" (regexMatch "^[a-z]+[+]sentinel:" $url) -}}
{{- range $number, $host := regexReplaceAll "^[^:]+://([^/?]*@)?([^/?]*).*$" $url "${2}" | splitList "," }}
{{- if $number }}{{ "\n" }}{{ end }}{{ regexFind ":[0-9]+$" (trim $host) | trimPrefix ":" | default $default }}
{{- end }}
{{- if eq $default "26379" }}{{ "\n6379" }}{{ end }}
{{- end }}

{{- define "keygrouping.egressToApiServer" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - port: {{ . }}
    {{- end }}
{{- end }}

{{/* To what the release has not brought: (dict "root" $ "ports" ...). */}}
{{- define "keygrouping.egressOut" -}}
- ports:
    {{- range .ports }}
    - port: {{ . }}
    {{- end }}
  {{- with .root.Values.networkPolicy.externalTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The policy of a bundled server: also "from" (own parts that use it) and "peers" (others). */}}
{{- define "keygrouping.serverNetworkPolicy" -}}
{{- $own := include "keygrouping.peer" (dict "root" .root "parts" .from) | fromYamlArray -}}
{{- $rule := dict "from" (concat $own (.peers | default list)) "ports" (list (dict "port" .part)) -}}
{{- include "keygrouping.networkPolicy" (merge (dict "closed" true "ingress" (list $rule | toYaml)) .) }}
{{- end }}
