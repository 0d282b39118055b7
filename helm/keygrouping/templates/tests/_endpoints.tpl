{{/* The pod of `helm test` that asks parts whether they are ready: (dict "root" $ "image" IMAGE "urls" LIST "users" false). */}}
{{- define "keygrouping.endpointsTest" -}}
{{- $values := merge (dict "resources" (dict "requests" (dict "cpu" "10m" "memory" "32Mi") "limits" (dict "memory" "128Mi"))) .root.Values.defaults }}
{{- $part := dict "root" .root "part" "test" "values" $values "image" .image "users" .users "once" true "unscraped" true "command" (concat (list "python" "-c" (.root.Files.Get "files/endpoints.py")) .urls) }}
{{- /* Not hook-succeeded: Helm 3 would delete the pods before `helm test --logs` reads what they say. */}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" }}
apiVersion: v1
kind: Pod
metadata:
  {{- include "keygrouping.metadata" (merge (dict "name" (printf "%s-endpoints" (include "keygrouping.name" $part)) "annotations" $hook) $part) | nindent 2 }}
spec:
  restartPolicy: Never
  {{- include "keygrouping.podSpec" $part | nindent 2 }}
  containers:
    - name: endpoints
      {{- include "keygrouping.container" $part | nindent 6 }}
  volumes:
    {{- include "keygrouping.volumes" $part | nindent 4 }}
{{- end }}
