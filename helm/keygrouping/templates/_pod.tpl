{{/* The pods of all parts. They are made of a context:
  root        $
  part        name of the part, such as "router"
  values      the part's values, merged over `defaults`: see "keygrouping.withDefaults"
  image       the image's reference
  section     prefix of the part's own settings, such as KEYGROUPING_ROUTER_
  env         text: more environment variables of the part
  job         whether it runs the job
  store       whether it opens the store
  apiKeys, producerKeys  keys of the Secrets with the tokens of router and producer that it is given
  topics      whether it must not start before the topics are there
  volumes, mounts   text: more volumes of the part, and where they are mounted
  command, args     lists
  ports       text: more ports
  once        whether it runs to its end, without HTTP
  ends        whether it runs to its end, with HTTP
  users       whether it is a user's program: it gets no settings of the pipeline
  serviceAccountName, token   another account, and whether its token is mounted
*/}}

{{/* A part's values over those of `defaults`, as JSON: maps are merged, everything else replaces. */}}
{{- define "keygrouping.withDefaults" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.defaults) (deepCopy .values) | toJson }}
{{- end }}

{{/* Template of the pods of one of our programs. */}}
{{- define "keygrouping.podTemplate" -}}
metadata:
  {{- include "keygrouping.podMetadata" . | nindent 2 }}
spec:
  {{- if or .once .ends }}
  restartPolicy: Never
  {{- end }}
  {{- include "keygrouping.podSpec" . | nindent 2 }}
  {{- if and .topics .root.Values.topics.enabled .root.Values.kafka.bundled.enabled }}
  initContainers:
    - name: topics
      {{- include "keygrouping.topicsContainer" (dict "root" .root "image" .image) | nindent 6 }}
  {{- end }}
  containers:
    - name: {{ .part }}
      {{- include "keygrouping.container" . | nindent 6 }}
  volumes:
    {{- include "keygrouping.volumes" . | nindent 4 }}
{{- end }}

{{/* Without the versions of chart and program: those alone are no reason for new pods. */}}
{{- define "keygrouping.podMetadata" -}}
labels:
  {{- include "keygrouping.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/part-of: keygrouping
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ .part }}
  {{- if .job }}
  checksum/job: {{ include "keygrouping.job" .root | sha256sum }}
  {{- end }}
  {{- if and .root.Values.metrics.annotations (not .unscraped) }}
  prometheus.io/scrape: "true"
  prometheus.io/port: "8080"
  prometheus.io/path: /metrics
  {{- end }}
  {{- with merge (dict) .values.podAnnotations .root.Values.commonAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* All of a pod's spec but containers and volumes. */}}
{{- define "keygrouping.podSpec" -}}
{{- $values := .values -}}
serviceAccountName: {{ .serviceAccountName | default (include "keygrouping.serviceAccountName" .root) }}
automountServiceAccountToken: {{ .token | default false }}
# KEYGROUPING_APP_PORT of a service keygrouping-app, for example, would be taken for a setting.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
securityContext:
  {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "keygrouping.selectorLabels" . | nindent 8 }}
  {{- end }}
{{- end }}

{{/* The container but for its name. */}}
{{- define "keygrouping.container" -}}
{{- $values := .values -}}
image: {{ .image }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- with .command }}
command: {{ toJson . }}
{{- end }}
{{- with .args }}
args: {{ toJson . }}
{{- end }}
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
env:
  {{- include "keygrouping.env" . | trim | nindent 2 }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not .once }}
ports:
  - name: http
    containerPort: 8080
  {{- with .ports }}
  {{- . | nindent 2 }}
  {{- end }}
startupProbe:
  httpGet: {path: /healthz, port: http}
  {{- toYaml $values.startupProbe | nindent 2 }}
readinessProbe:
  httpGet: {path: /readyz, port: http}
  {{- toYaml $values.readinessProbe | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  {{- toYaml $values.livenessProbe | nindent 2 }}
{{- if $values.preStopSeconds }}
lifecycle:
  preStop:
    exec:
      command: [sleep, {{ $values.preStopSeconds | quote }}]
{{- end }}
{{- end }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if .job }}
  - name: job
    mountPath: /etc/keygrouping/job
    readOnly: true
  {{- end }}
  {{- range $folder, $_ := include "keygrouping.secrets" . | fromJson }}
  - name: {{ $folder }}
    mountPath: /etc/keygrouping/{{ $folder }}
    readOnly: true
  {{- end }}
  {{- with .mounts }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "keygrouping.env" -}}
{{- include "keygrouping.kafkaEnv" .root }}
{{- $shared := .root.Values.settings -}}
{{- include "keygrouping.settings" (dict "prefix" "KEYGROUPING_" "settings" (ternary (pick $shared "logLevel" "logFormat") $shared (.users | default false))) }}
{{- if .job }}
- name: KEYGROUPING_JOB
  value: /etc/keygrouping/job/job.json
{{- end }}
{{- if and (or .job .stages) (eq .root.Values.stages "combine") }}
- name: KEYGROUPING_STAGES
  value: combine
{{- end }}
{{- if .store }}
{{ include "keygrouping.storeEnv" .root | trim }}
{{- end }}
{{- if not (or .once .users) }}
- name: KEYGROUPING_HTTP_HOSTS
  value: {{ include "keygrouping.httpHosts" . | quote }}
{{- end }}
{{- with .env }}
{{ . | trim }}
{{- end }}
{{- include "keygrouping.settings" (dict "prefix" .section "settings" (.values.settings | default dict)) }}
{{- end }}

{{/* The names that a part is asked by, besides those that need not be named. */}}
{{- define "keygrouping.httpHosts" -}}
{{- $hosts := list (printf "%s.%s" (include "keygrouping.name" .) .root.Release.Namespace) -}}
{{- range (.values.ingress | default dict).hosts }}{{ $hosts = append $hosts .host }}{{ end -}}
{{- range (.values.httpRoute | default dict).hostnames }}{{ $hosts = append $hosts . }}{{ end -}}
{{- concat $hosts .root.Values.httpHosts | compact | uniq | join "," -}}
{{- end }}

{{- define "keygrouping.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .job }}
- name: job
  configMap:
    name: {{ include "keygrouping.name" (dict "root" .root "part" "job") }}
{{- end }}
{{- range $folder, $secret := include "keygrouping.secrets" . | fromJson }}
- name: {{ $folder }}
  secret:
    secretName: {{ $secret.name }}
    items:
      {{- range $secret.keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- with .volumes }}
{{ . | trim }}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The container that creates the topics, or checks them. A bundled Kafka starts together with all that needs it, so it
is an init container there; otherwise it is a hook, so that a wrong topic stops the release. */}}
{{- define "keygrouping.topicsContainer" -}}
{{- $topics := .root.Values.topics -}}
{{- $settings := dict "create_events" (or $topics.createEvents .root.Values.kafka.bundled.enabled) "partitions" $topics.partitions "replication" $topics.replication "max_workers" .root.Values.worker.maxReplicas "letters_bytes" $topics.lettersBytes -}}
{{- $values := merge (dict "resources" $topics.resources "settings" $settings) .root.Values.defaults -}}
{{- include "keygrouping.container" (dict "root" .root "part" "topics" "values" $values "image" .image "section" "KEYGROUPING_TOPICS_" "stages" true "once" true "command" (list "python" "-m" "keygrouping_service.kafka.topics")) }}
{{- end }}
