{{/* Names. */}}

{{- define "keygrouping.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* A part's objects: "keygrouping.name" (dict "root" $ "part" "router"). */}}
{{- define "keygrouping.name" -}}
{{ include "keygrouping.fullname" .root }}-{{ .part }}
{{- end }}

{{- define "keygrouping.serviceAccountName" -}}
{{- $account := .Values.serviceAccount -}}
{{- $account.name | default (ternary (include "keygrouping.fullname" .) "default" $account.create) }}
{{- end }}

{{- define "keygrouping.sparkServiceAccountName" -}}
{{- $account := .Values.spark.serviceAccount -}}
{{- $account.name | default (ternary (printf "%s-spark" (include "keygrouping.fullname" .)) "default" $account.create) }}
{{- end }}

{{/* Whether there is a pipeline: an app needs none. */}}
{{- define "keygrouping.pipeline" -}}
{{- if and .Values.pipeline.enabled (ne .Values.runner "app") }}true{{ end }}
{{- end }}

{{/* Whether there are routers, and with them a Redis: workers may read the events themselves. */}}
{{- define "keygrouping.routes" -}}
{{- if and (include "keygrouping.pipeline" .) (ne .Values.stages "combine") }}true{{ end }}
{{- end }}

{{/* Labels and metadata. A part's are made of (dict "root" $ "part" "router"). */}}

{{- define "keygrouping.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "keygrouping.labels" -}}
{{ include "keygrouping.selectorLabels" . }}
app.kubernetes.io/part-of: keygrouping
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace, labels and annotations of an object; optional: "name", "labels" and "annotations" (maps). */}}
{{- define "keygrouping.metadata" -}}
name: {{ .name | default (include "keygrouping.name" .) }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "keygrouping.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Images: (dict "root" $ "image" .Values.router.image "own" true); "own": of this project, so that registry and tag of all apply. */}}
{{- define "keygrouping.image" -}}
{{- $all := .root.Values.image -}}
{{- $name := .image.repository -}}
{{- if and .own $all.registry }}
{{- $name = printf "%s/%s" (trimSuffix "/" $all.registry) $name }}
{{- end }}
{{- if .image.digest }}
{{- printf "%s@%s" $name .image.digest }}
{{- else }}
{{- printf "%s:%s" $name (.image.tag | default (ternary ($all.tag | default .root.Chart.AppVersion) "" (.own | default false)) | toString) }}
{{- end }}
{{- end }}

{{/* Settings of the programs as environment variables: names as in the values, in capitals, behind a prefix.
"keygrouping.settings" (dict "prefix" "KEYGROUPING_ROUTER_" "settings" .Values.router.settings) */}}
{{- define "keygrouping.settings" -}}
{{- range $name, $value := .settings }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ $.prefix }}{{ snakecase $name | upper }}
  value: {{ include "keygrouping.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* A value as text; numbers without exponents. */}}
{{- define "keygrouping.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if kindIs "float64" . }}{{ . | toJson }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{/* Kafka and Redis. */}}

{{- define "keygrouping.bootstrapServers" -}}
{{- if .Values.kafka.bundled.enabled -}}
{{ include "keygrouping.name" (dict "root" . "part" "kafka") }}:9092
{{- else -}}
{{ .Values.kafka.external.bootstrapServers }}
{{- end }}
{{- end }}

{{- define "keygrouping.storeUrl" -}}
{{- if .Values.redis.bundled.enabled -}}
redis://{{ include "keygrouping.name" (dict "root" . "part" "redis") }}:6379/0
{{- else -}}
{{ .Values.redis.external.url | default "memory://" }}
{{- end }}
{{- end }}

{{/* Whether one logs in at Kafka with tokens. */}}
{{- define "keygrouping.kafkaTokens" -}}
{{- $external := .Values.kafka.external -}}
{{- if and (not .Values.kafka.bundled.enabled) (hasPrefix "SASL" $external.securityProtocol) (eq $external.sasl.mechanism "OAUTHBEARER") }}true{{ end }}
{{- end }}

{{/* Environment of everything that talks to Kafka. */}}
{{- define "keygrouping.kafkaEnv" -}}
{{- $external := .Values.kafka.external -}}
- name: KEYGROUPING_BOOTSTRAP_SERVERS
  value: {{ include "keygrouping.bootstrapServers" . | quote }}
{{- if not .Values.kafka.bundled.enabled }}
- name: KEYGROUPING_SECURITY_PROTOCOL
  value: {{ $external.securityProtocol }}
{{- if hasPrefix "SASL" $external.securityProtocol }}
- name: KEYGROUPING_SASL_MECHANISM
  value: {{ $external.sasl.mechanism }}
{{- if eq $external.sasl.mechanism "OAUTHBEARER" }}
- name: KEYGROUPING_SASL_TOKEN_PROVIDER
  value: {{ $external.sasl.tokenProvider | quote }}
{{- else }}
- name: KEYGROUPING_SASL_USERNAME
  {{- if $external.sasl.username }}
  value: {{ $external.sasl.username | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ $external.sasl.existingSecret }}
      key: {{ $external.sasl.usernameKey }}
  {{- end }}
- name: KEYGROUPING_SASL_PASSWORD_FILE
  value: /etc/keygrouping/kafka-sasl/{{ $external.sasl.passwordKey }}
{{- end }}
{{- end }}
{{- if and $external.tls.existingSecret (hasSuffix "SSL" $external.securityProtocol) }}
{{- include "keygrouping.tlsEnv" (dict "prefix" "KEYGROUPING_SSL_" "folder" "kafka-tls" "tls" $external.tls) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "keygrouping.tlsEnv" -}}
{{- range $name, $key := dict "CAFILE" .tls.caKey "CERTFILE" .tls.certKey "KEYFILE" .tls.keyKey }}
{{- if $key }}
- name: {{ $.prefix }}{{ $name }}
  value: /etc/keygrouping/{{ $.folder }}/{{ $key }}
{{- end }}
{{- end }}
{{- end }}

{{/* Environment of everything that opens the store. */}}
{{- define "keygrouping.storeEnv" -}}
{{- $redis := .Values.redis -}}
- name: KEYGROUPING_STORE_URL
  value: {{ include "keygrouping.storeUrl" . | quote }}
{{- if include "keygrouping.redisSecret" . }}
- name: KEYGROUPING_STORE_PASSWORD_FILE
  value: /etc/keygrouping/redis/{{ $redis.auth.passwordKey }}
{{- with $redis.auth.sentinelPasswordKey }}
- name: KEYGROUPING_STORE_SENTINEL_PASSWORD_FILE
  value: /etc/keygrouping/redis/{{ . }}
{{- end }}
{{- end }}
{{- if and $redis.external.tls.existingSecret (not $redis.bundled.enabled) }}
{{- include "keygrouping.tlsEnv" (dict "prefix" "KEYGROUPING_STORE_" "folder" "redis-tls" "tls" $redis.external.tls) }}
{{- end }}
{{- end }}

{{/* The Secret with Redis' password: named, or made for the bundled one; empty: there is none. */}}
{{- define "keygrouping.redisSecret" -}}
{{- if or .Values.redis.auth.existingSecret .Values.redis.bundled.enabled -}}
{{ include "keygrouping.secretName" (dict "root" . "part" "redis" "auth" .Values.redis.auth) }}
{{- end }}
{{- end }}

{{/* Secrets that are mounted below /etc/keygrouping, by folder, as JSON: name, and only those keys that the part needs.
Of the context: "store", "apiKeys" and "producerKeys" (keys of the tokens of router and producer). */}}
{{- define "keygrouping.secrets" -}}
{{- $secrets := dict -}}
{{- $values := .root.Values -}}
{{- $kafka := $values.kafka -}}
{{- if not $kafka.bundled.enabled }}
{{- if and (hasPrefix "SASL" $kafka.external.securityProtocol) (ne $kafka.external.sasl.mechanism "OAUTHBEARER") }}
{{- $_ := set $secrets "kafka-sasl" (dict "name" $kafka.external.sasl.existingSecret "keys" (list $kafka.external.sasl.passwordKey)) }}
{{- end }}
{{- if and $kafka.external.tls.existingSecret (hasSuffix "SSL" $kafka.external.securityProtocol) }}
{{- $_ := set $secrets "kafka-tls" (include "keygrouping.tlsSecret" $kafka.external.tls | fromJson) }}
{{- end }}
{{- end }}
{{- if .store }}
{{- $redis := $values.redis -}}
{{- with include "keygrouping.redisSecret" .root }}
{{- $_ := set $secrets "redis" (dict "name" . "keys" (compact (list $redis.auth.passwordKey $redis.auth.sentinelPasswordKey))) }}
{{- end }}
{{- if and $redis.external.tls.existingSecret (not $redis.bundled.enabled) }}
{{- $_ := set $secrets "redis-tls" (include "keygrouping.tlsSecret" $redis.external.tls | fromJson) }}
{{- end }}
{{- end }}
{{- with .apiKeys }}
{{- $name := include "keygrouping.secretName" (dict "root" $.root "part" "router-tokens" "auth" $values.router.auth) }}
{{- $_ := set $secrets "api" (dict "name" $name "keys" .) }}
{{- end }}
{{- with .producerKeys }}
{{- $name := include "keygrouping.secretName" (dict "root" $.root "part" "producer-tokens" "auth" $values.producer.auth) }}
{{- $_ := set $secrets "producer-api" (dict "name" $name "keys" .) }}
{{- end }}
{{- toJson $secrets }}
{{- end }}

{{- define "keygrouping.tlsSecret" -}}
{{- dict "name" .existingSecret "keys" (compact (list .caKey .certKey .keyKey)) | toJson }}
{{- end }}

{{/* The key of the token by which others of the release read from the router; empty: they need none. */}}
{{- define "keygrouping.readerKey" -}}
{{- if and (include "keygrouping.routes" .) (ne .Values.router.settings.apiReads "open") }}{{ .Values.router.auth.readerTokenKey }}{{ end }}
{{- end }}

{{/* The key of the token by which others of the release write to the producer; empty: they need none. */}}
{{- define "keygrouping.writerKey" -}}
{{- if .Values.producer.auth.enabled }}{{ .Values.producer.auth.writerTokenKey }}{{ end }}
{{- end }}
