{{- define "keygrouping.sparkImage" -}}
{{ include "keygrouping.image" (dict "root" . "image" .Values.spark.image "own" true) }}
{{- end }}

{{/* Whether executors are pods of their own. */}}
{{- define "keygrouping.sparkOnKubernetes" -}}
{{- if and (eq .Values.runner "spark") (ne .Values.spark.mode "local") }}true{{ end }}
{{- end }}

{{- define "keygrouping.checkpointClaim" -}}
{{- if not .Values.spark.checkpoint.uri }}
{{- .Values.spark.checkpoint.persistence.existingClaim | default (printf "%s-spark-checkpoint" (include "keygrouping.fullname" .)) }}
{{- end }}
{{- end }}

{{/* Volumes of driver and executors, and where they are mounted. */}}
{{- define "keygrouping.sparkVolumes" -}}
- name: work
  emptyDir: {}
{{- if include "keygrouping.sparkOnKubernetes" . }}
- name: spark-auth
  secret:
    secretName: {{ include "keygrouping.secretName" (dict "root" . "part" "spark-auth" "auth" .Values.spark.auth) }}
    items:
      - {key: {{ .Values.spark.auth.secretKey }}, path: secret}
{{- end }}
{{- with include "keygrouping.checkpointClaim" . }}
- name: checkpoint
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- end }}

{{- define "keygrouping.sparkMounts" -}}
- name: work
  mountPath: /opt/spark/work-dir
{{- if include "keygrouping.sparkOnKubernetes" . }}
- name: spark-auth
  mountPath: /etc/keygrouping/spark-auth
  readOnly: true
{{- end }}
{{- if include "keygrouping.checkpointClaim" . }}
- name: checkpoint
  mountPath: /var/lib/keygrouping/checkpoint
{{- end }}
{{- end }}

{{/* The driver as a context for the helpers of pods: JSON without "root". */}}
{{- define "keygrouping.sparkDriver" -}}
{{- $spark := .Values.spark -}}
{{- $fixed := dict "podSecurityContext" (dict "fsGroup" 185) "settings" $spark.settings -}}
{{- $values := include "keygrouping.withDefaults" (dict "root" $ "values" (mustMergeOverwrite $fixed (deepCopy $spark.driver))) | fromJson -}}
{{- dict "part" "spark-driver" "values" $values "image" (include "keygrouping.sparkImage" .) "section" "KEYGROUPING_SPARK_" "job" true "topics" true "apiKeys" (include "keygrouping.readerKey" . | list | compact) | toJson }}
{{- end }}

{{- define "keygrouping.sparkDriverEnv" -}}
- name: KEYGROUPING_SPARK_CHECKPOINT
  value: {{ .Values.spark.checkpoint.uri | default "file:///var/lib/keygrouping/checkpoint" | quote }}
{{- if eq .Values.spark.mode "local" }}
- name: KEYGROUPING_SPARK_MASTER
  value: local[{{ .Values.worker.replicas }}]
{{- end }}
{{- if include "keygrouping.sparkOnKubernetes" . }}
- name: KEYGROUPING_SPARK_ROUTER_URL
  value: http://{{ include "keygrouping.name" (dict "root" . "part" "router") }}:{{ .Values.router.service.port }}
{{- with include "keygrouping.readerKey" . }}
- name: KEYGROUPING_SPARK_ROUTER_TOKEN_FILE
  value: /etc/keygrouping/api/{{ . }}
{{- end }}
{{- end }}
{{- if eq .Values.spark.mode "client" }}
- name: KEYGROUPING_SPARK_MASTER
  value: k8s://https://kubernetes.default.svc
- name: SPARK_CONF_DIR
  value: /etc/keygrouping/spark
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: POD_PREFIX
  value: {{ include "keygrouping.fullname" . | trunc 30 | trimSuffix "-" }}-worker
{{- end }}
{{- end }}

{{/* Spark's settings for a job whose executors are pods, as a map in YAML: `spark.conf` has the last word. */}}
{{- define "keygrouping.sparkConf" -}}
{{ mustMergeOverwrite (include "keygrouping.ownSparkConf" . | fromYaml) .Values.spark.conf | toYaml }}
{{- end }}

{{/* Of what the driver would make or clean up here nothing exists but claims, so that it needs no rights but on these and pods. */}}
{{- define "keygrouping.ownSparkConf" -}}
{{- $claims := .Values.spark.executor.persistence -}}
spark.blockManager.port: "7079"
spark.authenticate: "true"
spark.authenticate.secret.file: /etc/keygrouping/spark-auth/secret
spark.kubernetes.executor.disableConfigMap: "true"
spark.kubernetes.driver.service.deleteOnTermination: "false"
spark.kubernetes.driver.ownPersistentVolumeClaim: {{ $claims.enabled | quote }}
spark.kubernetes.driver.reusePersistentVolumeClaim: {{ $claims.enabled | quote }}
spark.kubernetes.driver.waitToReusePersistentVolumeClaim: "false"
{{- if $claims.enabled }}
{{- $volume := "spark.kubernetes.executor.volumes.persistentVolumeClaim.spark-local-dir-1" }}
{{ $volume }}.options.claimName: OnDemand
{{ $volume }}.options.sizeLimit: {{ $claims.size | quote }}
{{- with $claims.storageClass }}
{{ $volume }}.options.storageClass: {{ . | quote }}
{{- end }}
{{ $volume }}.mount.path: /var/lib/keygrouping/local
{{ $volume }}.mount.readOnly: "false"
spark.shuffle.sort.io.plugin.class: org.apache.spark.shuffle.KubernetesLocalDiskShuffleDataIO
{{- end }}
spark.decommission.enabled: "true"
spark.storage.decommission.enabled: "true"
spark.storage.decommission.rddBlocks.enabled: "true"
spark.storage.decommission.shuffleBlocks.enabled: "true"
{{- end }}

{{/* Memory of an executor besides the heap: what is there once, and the Python processes of each task at once. */}}
{{- define "keygrouping.executorOverhead" -}}
{{- .Values.spark.executor.memoryOverhead | default (printf "%dm" (add 512 (mul 256 (int .Values.spark.executor.cores)))) -}}
{{- end }}

{{/* The same for a driver of our own. */}}
{{- define "keygrouping.sparkClientConf" -}}
{{- $executor := .Values.spark.executor -}}
spark.driver.host: {{ include "keygrouping.name" (dict "root" . "part" "spark-driver") }}.{{ .Release.Namespace }}.svc
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.executor.instances: {{ .Values.worker.replicas | toString | quote }}
spark.executor.cores: {{ $executor.cores | toString | quote }}
spark.executor.memory: {{ $executor.memory }}
spark.executor.memoryOverhead: {{ include "keygrouping.executorOverhead" . }}
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "keygrouping.sparkImage" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.imagePullSecrets }}
{{- $names := list -}}
{{- range . }}{{ $names = append $names .name }}{{ end }}
spark.kubernetes.container.image.pullSecrets: {{ join "," $names }}
{{- end }}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "keygrouping.serviceAccountName" . }}
spark.kubernetes.executor.podTemplateFile: /etc/keygrouping/spark/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: worker
spark.kubernetes.executor.request.cores: {{ $executor.cpuRequest | quote }}
{{- with $executor.cpuLimit }}
spark.kubernetes.executor.limit.cores: {{ . | quote }}
{{- end }}
{{ include "keygrouping.sparkConf" . }}
{{- end }}

{{/* Template of an executor's pod: all that Spark's own settings don't say. */}}
{{- define "keygrouping.executorTemplate" -}}
{{- $fixed := dict "podSecurityContext" (dict "fsGroup" 185) -}}
{{- $values := include "keygrouping.withDefaults" (dict "root" $ "values" (mustMergeOverwrite $fixed (deepCopy .Values.spark.executor))) | fromJson -}}
{{- $part := dict "root" $ "part" "worker" "values" $values "unscraped" true -}}
metadata:
  {{- include "keygrouping.podMetadata" $part | nindent 2 }}
spec:
  {{- include "keygrouping.podSpec" $part | nindent 2 }}
  containers:
    - name: worker
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      {{- with $values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- include "keygrouping.sparkMounts" . | nindent 8 }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- include "keygrouping.sparkVolumes" . | nindent 4 }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
