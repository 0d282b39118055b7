{{/* Pods of the native workers. Whoever else has scaled since the last upgrade (kubectl scale) keeps what they set,
until worker.replicas itself is changed: the annotation tells what the chart has set. */}}
{{- define "keygrouping.workerReplicas" -}}
{{- $wanted := int .Values.worker.replicas -}}
{{- $live := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "keygrouping.name" (dict "root" . "part" "worker")) -}}
{{- $set := dig "metadata" "annotations" "keygrouping/replicas" "" ($live | default dict) -}}
{{- if eq $set (toString $wanted) }}{{ int $live.spec.replicas }}{{ else }}{{ $wanted }}{{ end }}
{{- end }}
