{{/* A file of rules or a dashboard, with the runbooks' address: (dict "root" $ "path" "files/..."). */}}
{{- define "keygrouping.monitoringFile" -}}
{{ .root.Files.Get .path | replace "https://keygrouping.example.com/docs/runbooks.md" .root.Values.metrics.runbookUrl }}
{{- end }}
