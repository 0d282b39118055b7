{{/* A user's own image, which runs an App of `keygrouping.app`. */}}

{{/* The context of its pods, of (dict "root" $ "static" true), as JSON without the root; "static": pods keep their names. */}}
{{- define "keygrouping.appPart" -}}
{{- $app := .root.Values.app -}}
{{- $values := include "keygrouping.withDefaults" (dict "root" .root "values" $app) | fromJson -}}
{{- $image := include "keygrouping.image" (dict "root" .root "image" $app.image) -}}
{{- $seconds := sub (int $values.terminationGracePeriodSeconds) (int $values.preStopSeconds) -}}
{{- $env := list
  (dict "name" "KEYGROUPING_APP_PORT" "value" "8080")
  (dict "name" "KEYGROUPING_APP_STOP_SECONDS" "value" (toString $seconds)) -}}
{{- if .static }}
{{- $env = append $env (dict "name" "KEYGROUPING_APP_INSTANCE_ID" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name"))) -}}
{{- end }}
{{- dict "part" "app" "values" $values "image" $image "section" "KEYGROUPING_APP_" "env" (toYaml $env) "users" true "command" (list "keygrouping" "app" $app.module) | toJson -}}
{{- end }}

{{/* Whether the app ends by itself, as a backfill does. */}}
{{- define "keygrouping.appEnds" -}}
{{- if .Values.app.settings.until }}true{{ end }}
{{- end }}
