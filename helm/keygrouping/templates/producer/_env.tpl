{{- define "keygrouping.producerEnv" -}}
{{- with .Values.producer.auth }}
{{- if .enabled }}
- name: KEYGROUPING_API_TOKEN_FILE
  value: /etc/keygrouping/producer-api/{{ .tokensKey }}
{{- end }}
{{- end }}
{{- end }}
