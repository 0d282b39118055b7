{{/* Exporters for topics that nobody routes. */}}

{{/* The part of an exporter, which names its objects: "keygrouping.inspectPart" (one of inspect.topics). */}}
{{- define "keygrouping.inspectPart" -}}
inspect-{{ .name | default .topic | lower | replace "_" "-" | replace "." "-" }}
{{- end }}

{{/* The arguments of `keygrouping inspect`, as JSON. */}}
{{- define "keygrouping.inspectArguments" -}}
{{- $given := list "inspect" "--topic" .topic "--follow" "--metrics-port" "8080" -}}
{{- range $option, $value := dict "--key" .key "--weight" .weight "--window" .window "--every" .every "--top" .top }}
{{- if $value }}{{ $given = concat $given (list $option (include "keygrouping.text" $value)) }}{{ end }}
{{- end }}
{{- with .workers }}
{{- $given = append $given "--workers" }}
{{- range . }}{{ $given = append $given (include "keygrouping.text" .) }}{{ end }}
{{- end }}
{{- if .hashKeys }}{{ $given = append $given "--hash-keys" }}{{ end }}
{{- if .keyLabels }}{{ $given = append $given "--key-labels" }}{{ end }}
{{- toJson $given }}
{{- end }}

{{- define "keygrouping.inspectEnv" -}}
{{- with .Values.inspect.auth.existingSecret }}
- name: KEYGROUPING_API_TOKEN_FILE
  value: /etc/keygrouping/inspect-api/{{ $.Values.inspect.auth.tokensKey }}
- name: KEYGROUPING_API_READS
  value: closed
{{- end }}
{{- if .Values.inspect.saltSecret.name }}
- name: KEYGROUPING_INSPECT_SALT_FILE
  value: /etc/keygrouping/inspect-salt/{{ $.Values.inspect.saltSecret.key }}
{{- end }}
{{- end }}

{{- define "keygrouping.inspectMounts" -}}
{{- if .Values.inspect.auth.existingSecret }}
- name: inspect-api
  mountPath: /etc/keygrouping/inspect-api
  readOnly: true
{{- end }}
{{- if .Values.inspect.saltSecret.name }}
- name: inspect-salt
  mountPath: /etc/keygrouping/inspect-salt
  readOnly: true
{{- end }}
{{- end }}

{{- define "keygrouping.inspectVolumes" -}}
{{- with .Values.inspect.auth.existingSecret }}
- name: inspect-api
  secret:
    secretName: {{ . }}
    items:
      - key: {{ $.Values.inspect.auth.tokensKey }}
        path: {{ $.Values.inspect.auth.tokensKey }}
{{- end }}
{{- with .Values.inspect.saltSecret.name }}
- name: inspect-salt
  secret:
    secretName: {{ . }}
    items:
      - key: {{ $.Values.inspect.saltSecret.key }}
        path: {{ $.Values.inspect.saltSecret.key }}
{{- end }}
{{- end }}
