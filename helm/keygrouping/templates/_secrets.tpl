{{/* Passwords and tokens: those that a user names, else random ones that are made once. */}}

{{/* The name of a Secret of (dict "root" $ "part" "redis" "auth" .Values.redis.auth). */}}
{{- define "keygrouping.secretName" -}}
{{ .auth.existingSecret | default (include "keygrouping.name" .) }}
{{- end }}

{{/* What a Secret that this chart has made holds now, as JSON; nothing where no cluster can be asked. */}}
{{- define "keygrouping.keptSecret" -}}
{{- $kept := dict -}}
{{- range $key, $value := (lookup "v1" "Secret" .root.Release.Namespace (include "keygrouping.name" .)).data }}
{{- $_ := set $kept $key (b64dec $value) }}
{{- end }}
{{- toJson $kept }}
{{- end }}

{{- define "keygrouping.secret" -}}
apiVersion: v1
kind: Secret
metadata:
  {{- include "keygrouping.metadata" . | nindent 2 }}
type: Opaque
data:
  {{- range $key, $value := .content }}
  {{ $key }}: {{ $value | b64enc | quote }}
  {{- end }}
{{- end }}

{{/* A Secret with one random value: (dict "root" $ "part" "redis" "key" "password"). */}}
{{- define "keygrouping.randomSecret" -}}
{{- $kept := include "keygrouping.keptSecret" . | fromJson -}}
{{- $content := dict .key (get $kept .key | default (randAlphaNum 40)) -}}
{{- include "keygrouping.secret" (merge (dict "content" (merge $content $kept)) .) }}
{{- end }}

{{/* A Secret with a token for each role, alone and in the file of all: "keys" has the names of these three. The file is
the user's once it is made: a token that was taken out of it is not put back. */}}
{{- define "keygrouping.tokensSecret" -}}
{{- $kept := include "keygrouping.keptSecret" . | fromJson -}}
{{- $content := dict -}}
{{- $file := get $kept .keys.tokens -}}
{{- $lines := list -}}
{{- with $file }}{{ $lines = append $lines (trimSuffix "\n" .) }}{{ end -}}
{{- range $role := list "read" "write" }}
{{- $known := get $kept (get $.keys $role) }}
{{- $token := $known | default (randAlphaNum 40) }}
{{- if not (and $known $file) }}
{{- $lines = append $lines (printf "%s-%s %s %s" $.root.Release.Name $role $role $token) }}
{{- end }}
{{- $_ := set $content (get $.keys $role) $token }}
{{- end }}
{{- $_ := set $content .keys.tokens (printf "%s\n" (join "\n" $lines)) }}
{{- include "keygrouping.secret" (merge (dict "content" (merge $content $kept)) .) }}
{{- end }}

{{/* The Secrets that nobody has named, as JSON: part, value that would name one, and its key or keys. */}}
{{- define "keygrouping.unnamedSecrets" -}}
{{- $unnamed := list -}}
{{- if include "keygrouping.pipeline" . }}
{{- $redis := .Values.redis }}
{{- if and (include "keygrouping.routes" .) $redis.bundled.enabled (not $redis.auth.existingSecret) }}
{{- $unnamed = append $unnamed (dict "part" "redis" "value" "redis.auth" "key" $redis.auth.passwordKey) }}
{{- end }}
{{- $reads := and .Values.observer.enabled (ne .Values.observer.settings.apiReads "open") }}
{{- with .Values.router.auth }}
{{- if and (or (include "keygrouping.routes" $) $reads) .enabled (not .existingSecret) }}
{{- $keys := dict "tokens" .tokensKey "read" .readerTokenKey "write" "write" }}
{{- $unnamed = append $unnamed (dict "part" "router-tokens" "value" "router.auth" "keys" $keys) }}
{{- end }}
{{- end }}
{{- with .Values.producer.auth }}
{{- if and $.Values.producer.enabled .enabled (not .existingSecret) }}
{{- $keys := dict "tokens" .tokensKey "read" "read" "write" .writerTokenKey }}
{{- $unnamed = append $unnamed (dict "part" "producer-tokens" "value" "producer.auth" "keys" $keys) }}
{{- end }}
{{- end }}
{{- if and (include "keygrouping.sparkOnKubernetes" .) (not .Values.spark.auth.existingSecret) }}
{{- $unnamed = append $unnamed (dict "part" "spark-auth" "value" "spark.auth" "key" .Values.spark.auth.secretKey) }}
{{- end }}
{{- end }}
{{- toJson $unnamed }}
{{- end }}
