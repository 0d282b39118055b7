{{- define "keygrouping.routerEnv" -}}
- name: KEYGROUPING_ROUTER_WORKERS
  value: {{ .Values.worker.replicas | toString | quote }}
- name: KEYGROUPING_ROUTER_AUTO_WORKERS
  value: {{ eq .Values.runner "native" | quote }}
- name: KEYGROUPING_ROUTER_GROUPING
  value: {{ .Values.router.grouping.name }}
- name: KEYGROUPING_ROUTER_GROUPING_SETTINGS
  value: {{ .Values.router.grouping.settings | toJson | quote }}
- name: KEYGROUPING_ROUTER_REPLICA
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
