{{/* What no schema can find in the values: what one of them says against another one. */}}

{{- define "capstan.check" -}}
{{- $objects := .Values.operatorObjects -}}
{{- if not $objects.enabled -}}
{{- if eq "ask" $objects.onNewVersion -}}
{{- fail "operatorObjects.onNewVersion: ask needs operatorObjects.enabled: approvals are objects, and are read with the operators" -}}
{{- end -}}
{{- if $objects.ceilings -}}
{{- fail "operatorObjects.ceilings needs operatorObjects.enabled" -}}
{{- end -}}
{{- end -}}
{{- $found := dict -}}
{{- range $name, $ceiling := $objects.ceilings -}}
{{- range $namespace := $ceiling.namespaces -}}
{{- if eq $namespace $.Release.Namespace -}}
{{- fail (printf "operatorObjects.ceilings.%s.namespaces: %s is the release's own namespace, whose operators have no ceiling" $name $namespace) -}}
{{- end -}}
{{- with get $found $namespace -}}
{{- fail (printf "operatorObjects.ceilings.%s.namespaces: %s is in the ceiling %s, too; expected it in one of them" $name $namespace .) -}}
{{- end -}}
{{- $_ := set $found $namespace $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
