{{- define "keygrouping.routerEnv" -}}
- name: KEYGROUPING_ROUTER_WORKERS
  value: {{ .Values.worker.replicas | toString | quote }}
{{- if eq .Values.runner "native" }}
- name: KEYGROUPING_ROUTER_WORKER_PODS
  value: {{ include "keygrouping.name" (dict "root" . "part" "worker") }}
{{- end }}
- name: KEYGROUPING_ROUTER_GROUPING
  value: {{ .Values.router.grouping.name }}
- name: KEYGROUPING_ROUTER_GROUPING_SETTINGS
  value: {{ .Values.router.grouping.settings | toJson | quote }}
- name: KEYGROUPING_ROUTER_REPLICA
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{/* The account of the routers: one that may scale the native workers, else that of all services. */}}
{{- define "keygrouping.routerServiceAccountName" -}}
{{- $account := .Values.router.serviceAccount -}}
{{- if eq .Values.runner "native" -}}
{{ $account.name | default (ternary (include "keygrouping.name" (dict "root" . "part" "router")) "default" $account.create) }}
{{- else -}}
{{ include "keygrouping.serviceAccountName" . }}
{{- end }}
{{- end }}

{{- define "keygrouping.routerTokens" -}}
{{- with .Values.router.auth }}
{{- if .enabled }}
- name: KEYGROUPING_API_TOKEN_FILE
  value: /etc/keygrouping/api/{{ .tokensKey }}
{{- end }}
{{- end }}
{{- end }}
