{{- define "keygrouping.observerEnv" -}}
{{- if include "keygrouping.routes" . }}
- name: KEYGROUPING_OBSERVER_ROUTER_URL
  value: http://{{ include "keygrouping.name" (dict "root" . "part" "router") }}:{{ .Values.router.service.port }}
{{- with include "keygrouping.readerKey" . }}
- name: KEYGROUPING_OBSERVER_ROUTER_TOKEN_FILE
  value: /etc/keygrouping/api/{{ . }}
{{- end }}
{{- end }}
{{- if ne .Values.observer.settings.apiReads "open" }}
- name: KEYGROUPING_API_TOKEN_FILE
  value: /etc/keygrouping/api/{{ .Values.router.auth.tokensKey }}
{{- end }}
{{- end }}
