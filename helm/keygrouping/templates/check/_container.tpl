{{/* One program's check: of (dict "root" $ "part" "router" "class" (list PREFIX CLASS) "last" true). */}}
{{- define "keygrouping.checkContainer" -}}
{{- $own := .root.Values }}
{{- range splitList "." .part }}{{ $own = get $own . }}{{ end }}
{{- $image := $own.image | default .root.Values.load.image }}
{{- $command := list "python" "-m" "keygrouping_service.check" .part (last .class) "--faults" "/tmp/faults" }}
{{- $values := merge (dict "resources" .root.Values.check.resources "settings" (omit $own.settings "apiReads")) .root.Values.defaults }}
- name: check{{ if not .last }}-{{ .part | replace "." "-" }}{{ end }}
  image: {{ include "keygrouping.image" (dict "root" .root "image" $image "own" true) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: {{ toJson (ternary (append $command "--last") $command (.last | default false)) }}
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  env:
    - name: KEYGROUPING_BOOTSTRAP_SERVERS
      value: {{ include "keygrouping.bootstrapServers" .root | quote }}
    {{- include "keygrouping.settings" (dict "prefix" "KEYGROUPING_" "settings" .root.Values.settings) | trim | nindent 4 }}
    - name: KEYGROUPING_JOB
      value: {{ include "keygrouping.job" .root | fromJson | toJson | quote }}
    {{- if eq .root.Values.stages "combine" }}
    - name: KEYGROUPING_STAGES
      value: combine
    {{- end }}
    {{- if eq .part "router" }}
    - name: KEYGROUPING_STORE_URL
      value: {{ include "keygrouping.storeUrl" .root | quote }}
    {{- include "keygrouping.routerEnv" .root | nindent 4 }}
    {{- else if eq .part "spark" }}
    - name: KEYGROUPING_SPARK_CHECKPOINT
      value: {{ .root.Values.spark.checkpoint.uri | default "file:///checkpoint" | quote }}
    {{- else if eq .part "load.http" }}
    - name: KEYGROUPING_HTTPLOAD_ROUTER_URL
      value: http://{{ include "keygrouping.name" (dict "root" .root "part" "router") }}
    {{- end }}
    {{- include "keygrouping.settings" (dict "prefix" (first .class) "settings" $values.settings) | trim | nindent 4 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
{{- end }}
