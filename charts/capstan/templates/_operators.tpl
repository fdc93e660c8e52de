{{/* What operators of the values are in the pod: manifests in one folder, each component in a folder of its own. */}}

{{/* The folder of the manifests. */}}
{{- define "capstan.manifestFolder" -}}/etc/capstan/operators{{- end -}}

{{/* The folder of a component, from a dict of operator and plugin. */}}
{{- define "capstan.componentFolder" -}}
/etc/capstan/components/{{ .operator }}/{{ .plugin }}
{{- end -}}

{{/* The name of a component's volume or ConfigMap: unique, whatever the names, and short enough. */}}
{{- define "capstan.componentName" -}}
{{- $name := printf "%s-%s" .operator .plugin | trunc 40 | trimSuffix "-" -}}
{{- printf "%s-%s" $name (printf "%s/%s" .operator .plugin | sha256sum | trunc 8) -}}
{{- end -}}

{{/* The name of the ConfigMap with a component of the values, from a dict of root, operator and plugin. */}}
{{- define "capstan.componentMap" -}}
{{- printf "%s-%s" (include "capstan.fullname" .root | trunc 50 | trimSuffix "-") (include "capstan.componentName" .) -}}
{{- end -}}

{{/* The file name of a component in its folder, from what the values say of it. */}}
{{- define "capstan.componentFile" -}}
{{- if .configMap }}{{ .configMap.key }}
{{- else if .secret }}{{ .secret.key }}
{{- else if .volume }}{{ .volume.path }}
{{- else if .image }}{{ .image.path }}
{{- else }}component.wasm
{{- end -}}
{{- end -}}

{{/* A component of the values: base64, without the line breaks that it may have. */}}
{{- define "capstan.componentData" -}}
{{- $base64 := regexReplaceAll "\\s" .data "" -}}
{{- /* So begins all WebAssembly. */ -}}
{{- if not (hasPrefix "AGFzb" $base64) -}}
{{- fail (printf "operators.%s.components.%s.data: expected a WebAssembly component in base64, as `base64 FILE` prints it" .operator .plugin) -}}
{{- end -}}
{{- $base64 -}}
{{- end -}}

{{/* The manifest of an operator, as YAML, from a dict of name and what the values say of the operator. */}}
{{- define "capstan.manifest" -}}
{{- $name := .name -}}
{{- $components := default dict .operator.components -}}
{{- $defaults := dict "apiVersion" "capstan.dev/v1alpha1" "kind" "Operator" "metadata" (dict "name" $name) -}}
{{- $manifest := mergeOverwrite $defaults (deepCopy .operator.manifest) -}}
{{- $plugins := default dict $manifest.spec.plugins -}}
{{- range $plugin, $component := $components -}}
{{- if not (hasKey $plugins $plugin) -}}
{{- fail (printf "operators.%s.components.%s: the manifest declares no plugin of that name; there are: %s" $name $plugin (keys $plugins | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $folder := include "capstan.componentFolder" (dict "operator" $name "plugin" $plugin) -}}
{{- $declared := default dict (get $plugins $plugin) -}}
{{- $_ := set $declared "component" (dict "path" (printf "%s/%s" $folder (include "capstan.componentFile" $component))) -}}
{{- $_ := set $plugins $plugin $declared -}}
{{- end -}}
{{- range $plugin, $declared := $plugins -}}
{{- if not (get (default dict $declared) "component") -}}
{{- fail (printf "operators.%s.components.%s: say where the component is: configMap, secret, volume, image or data" $name $plugin) -}}
{{- end -}}
{{- end -}}
{{- toYaml $manifest -}}
{{- end -}}

{{/* The name of the Secret with the key of compiled code. */}}
{{- define "capstan.codeKeyName" -}}
{{- default (printf "%s-code-key" (include "capstan.fullname" . | trunc 54 | trimSuffix "-")) .Values.codeCache.keySecret -}}
{{- end -}}

{{/* The volume of compiled code. */}}
{{- define "capstan.codeVolume" -}}
- name: code
{{- if .Values.codeCache.persistentVolumeClaim }}
  persistentVolumeClaim:
    claimName: {{ .Values.codeCache.persistentVolumeClaim }}
{{- else }}
  emptyDir:
    sizeLimit: {{ .Values.codeCache.sizeLimit }}
{{- end }}
{{- end -}}

{{/* The volumes of manifests and components, and of all else but compiled code. */}}
{{- define "capstan.volumes" -}}
- name: operators
  configMap:
    name: {{ include "capstan.fullname" . }}-operators
{{- if .Values.defaults }}
- name: defaults
  configMap:
    name: {{ include "capstan.fullname" . }}-defaults
{{- end }}
{{- if .Values.verifyKeys }}
- name: verify-keys
  configMap:
    name: {{ include "capstan.fullname" . }}-verify-keys
{{- end }}
{{- if .Values.operatorObjects.ceilings }}
- name: ceilings
  configMap:
    name: {{ include "capstan.fullname" . }}-ceilings
{{- end }}
{{- range $operator, $declared := .Values.operators }}
{{- range $plugin, $component := $declared.components }}
{{- $about := dict "root" $ "operator" $operator "plugin" $plugin }}
- name: {{ include "capstan.componentName" $about }}
  {{- /* What is missing keeps its own operator from running, and neither the pod nor the others. */}}
  {{- if $component.configMap }}
  configMap:
    name: {{ $component.configMap.name }}
    items: [{ key: {{ $component.configMap.key | quote }}, path: {{ $component.configMap.key | quote }} }]
    optional: true
  {{- else if $component.secret }}
  secret:
    secretName: {{ $component.secret.name }}
    items: [{ key: {{ $component.secret.key | quote }}, path: {{ $component.secret.key | quote }} }]
    optional: true
  {{- else if $component.volume }}
  {{- toYaml $component.volume.source | nindent 2 }}
  {{- else if $component.image }}
  {{- if semverCompare "<1.31.0-0" $.Capabilities.KubeVersion.Version }}
  {{- fail (printf "operators.%s.components.%s.image: images as volumes need Kubernetes 1.31, this is %s" $operator $plugin $.Capabilities.KubeVersion.Version) }}
  {{- end }}
  image:
    reference: {{ $component.image.reference | quote }}
    {{- with $component.image.pullPolicy }}
    pullPolicy: {{ . }}
    {{- end }}
  {{- else }}
  configMap:
    name: {{ include "capstan.componentMap" $about }}
  {{- end }}
{{- end }}
{{- end }}
- name: code-key
  secret:
    secretName: {{ include "capstan.codeKeyName" . }}
    items: [{ key: key, path: key }]
    defaultMode: 0440
{{- if and .Values.inbound.enabled .Values.inbound.tlsSecret }}
- name: inbound-tls
  secret:
    secretName: {{ .Values.inbound.tlsSecret }}
    items: [{ key: tls.crt, path: tls.crt }, { key: tls.key, path: tls.key }]
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where these volumes are mounted. None is a subPath: those do not follow changes. */}}
{{- define "capstan.volumeMounts" -}}
- name: operators
  mountPath: {{ include "capstan.manifestFolder" . }}
  readOnly: true
{{- if .Values.defaults }}
- name: defaults
  mountPath: /etc/capstan/defaults
  readOnly: true
{{- end }}
{{- if .Values.verifyKeys }}
- name: verify-keys
  mountPath: /etc/capstan/verify-keys
  readOnly: true
{{- end }}
{{- if .Values.operatorObjects.ceilings }}
- name: ceilings
  mountPath: /etc/capstan/ceilings
  readOnly: true
{{- end }}
{{- range $operator, $declared := .Values.operators }}
{{- range $plugin, $component := $declared.components }}
{{- $about := dict "operator" $operator "plugin" $plugin }}
- name: {{ include "capstan.componentName" $about }}
  mountPath: {{ include "capstan.componentFolder" $about }}
  readOnly: true
{{- end }}
{{- end }}
- name: code
  mountPath: /var/cache/capstan
- name: code-key
  mountPath: /etc/capstan/code-key
  readOnly: true
{{- if and .Values.inbound.enabled .Values.inbound.tlsSecret }}
- name: inbound-tls
  mountPath: /etc/capstan/inbound-tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The document of ceilings. */}}
{{- define "capstan.ceilings" -}}
apiVersion: capstan.dev/v1alpha1
kind: Ceilings
spec:
  ceilings:
    {{- toYaml .Values.operatorObjects.ceilings | nindent 4 }}
{{- end -}}

{{/* The file of ceilings in the pod. */}}
{{- define "capstan.ceilingsFile" -}}/etc/capstan/ceilings/ceilings.yaml{{- end -}}

{{/* The arguments that say where operators are. The daemon makes the folder of compiled code itself, for itself alone. */}}
{{- define "capstan.sourceArgs" -}}
{{- if .Values.operators }}
- --manifest={{ include "capstan.manifestFolder" . }}
{{- end }}
{{- range .Values.manifests }}
- --manifest={{ . }}
{{- end }}
{{- if .Values.defaults }}
- --defaults=/etc/capstan/defaults/defaults.yaml
{{- end }}
- --code-cache=/var/cache/capstan/code
- --code-cache-key-file=/etc/capstan/code-key/key
- --code-cache-size={{ .Values.codeCache.size }}
- --component-cache=/var/cache/capstan/components
- --component-cache-size={{ .Values.componentCache.size }}
{{- range .Values.insecureRegistries }}
- --insecure-registry={{ . }}
{{- end }}
{{- range $registry, $mirrors := .Values.registryMirrors }}
{{- range $mirrors }}
- {{ printf "--registry-mirror=%s=%s" $registry . | quote }}
{{- end }}
{{- end }}
{{- range $number, $_ := .Values.verifyKeys }}
- --verify-key=/etc/capstan/verify-keys/{{ $number }}.pub
{{- end }}
{{- with .Values.compile.memory }}
- --compile-memory={{ . }}
{{- end }}
- --compile-timeout={{ .Values.compile.timeout }}
{{- end -}}
