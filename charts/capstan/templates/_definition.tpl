{{/* Whose the definitions (CRDs) are, which a cluster has once. */}}

{{/*
Says whose a definition of this name is, if it is not for this chart to write: another release's, or that of a newer chart, whose operators may have
fields that this one does not know. Empty: it is ours, or nobody's.
*/}}
{{- define "capstan.definition.keeper" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name | default dict -}}
{{- $said := dig "metadata" "annotations" dict $there | default dict -}}
{{- $release := get $said "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := get $said "meta.helm.sh/release-namespace" | default "" -}}
{{- $version := get $said "capstan.dev/chart-version" | default "0.0.0" -}}
{{- if and $release (or (ne $release .root.Release.Name) (ne $namespace .root.Release.Namespace)) -}}
the release {{ $release }} in namespace {{ $namespace }}
{{- else if gt ((semver $version).Compare (semver .root.Chart.Version)) 0 -}}
version {{ $version }} of the chart
{{- end -}}
{{- end -}}
