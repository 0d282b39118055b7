{{/* The image of both load generators. */}}
{{- define "keygrouping.loadImage" -}}
{{ include "keygrouping.image" (dict "root" . "image" .Values.load.image "own" true) }}
{{- end }}

{{/* A Job of a context for the helpers of pods. Its name tells its content: a Job can't be changed, only another made. */}}
{{- define "keygrouping.loadJob" -}}
{{- $template := include "keygrouping.podTemplate" . -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "keygrouping.metadata" (merge (dict "name" (printf "%s-%s" (include "keygrouping.name" .) (sha256sum $template | trunc 8))) .) | nindent 2 }}
spec:
  # Load that was interrupted is not the load that was asked for.
  backoffLimit: 0
  template:
    {{- $template | nindent 4 }}
{{- end }}

{{- define "keygrouping.loadHttpEnv" -}}
- name: KEYGROUPING_HTTPLOAD_ROUTER_URL
  value: http://{{ include "keygrouping.name" (dict "root" . "part" "router") }}:{{ .Values.router.service.port }}
{{- with include "keygrouping.readerKey" . }}
- name: KEYGROUPING_HTTPLOAD_TOKEN_FILE
  value: /etc/keygrouping/api/{{ . }}
{{- end }}
{{- if and .Values.producer.enabled .Values.producer.replicas }}
- name: KEYGROUPING_HTTPLOAD_PRODUCER_URL
  value: http://{{ include "keygrouping.name" (dict "root" . "part" "producer") }}:{{ .Values.producer.service.port }}
{{- with include "keygrouping.writerKey" . }}
- name: KEYGROUPING_HTTPLOAD_PRODUCER_TOKEN_FILE
  value: /etc/keygrouping/producer-api/{{ . }}
{{- end }}
{{- end }}
{{- end }}
