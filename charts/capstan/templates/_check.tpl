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
{{- $code := .Values.codeCache -}}
{{- if not $code.persistentVolumeClaim -}}
{{- $kept := addf (include "capstan.bytes" $code.size | float64) (include "capstan.bytes" .Values.componentCache.size | float64) -}}
{{- if gt $kept (include "capstan.bytes" $code.sizeLimit | float64) -}}
{{- fail (printf "codeCache.sizeLimit: %v is less than codeCache.size and componentCache.size, %s and %s: the pod would be evicted" $code.sizeLimit $code.size .Values.componentCache.size) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* An amount such as 768Mi, in bytes. */}}
{{- define "capstan.bytes" -}}
{{- $text := toString . -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit | default 1.0) | printf "%f" -}}
{{- end -}}
