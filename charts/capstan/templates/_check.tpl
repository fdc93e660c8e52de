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
{{- range $number, $key := .Values.verifyKeys -}}
{{- include "capstan.checkKey" (dict "field" (printf "verifyKeys[%d]" $number) "key" $key) -}}
{{- end -}}
{{- range $name, $ceiling := $objects.ceilings -}}
{{- range $number, $key := $ceiling.verifyKeys -}}
{{- include "capstan.checkKey" (dict "field" (printf "operatorObjects.ceilings.%s.verifyKeys[%d]" $name $number) "key" $key) -}}
{{- end -}}
{{- end -}}
{{- range $registry, $mirrors := .Values.registryMirrors -}}
{{- if and $mirrors (not (without $mirrors "only")) -}}
{{- fail (printf "registryMirrors.%s: found `only` without a mirror; expected one, such as mirror.example.com/path" $registry) -}}
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

{{/* Fails where PEM has no key that the daemon takes: ECDSA P-256, Ed25519 or RSA. */}}
{{- define "capstan.checkKey" -}}
{{- $block := regexFind "-----BEGIN PUBLIC KEY-----[^-]*-----END PUBLIC KEY-----" .key -}}
{{- $body := regexReplaceAll "-----[A-Z ]+-----|\\s" $block "" -}}
{{- $p256 := "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==" -}}
{{- $ed25519 := "MCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=" -}}
{{- $rsa := "MII[A-Za-z0-9+/]{3}ANBgkqhkiG9w0BAQEFAAOC[A-Za-z0-9+/]{300,}={0,2}" -}}
{{- if not (regexMatch (printf "^(%s|%s|%s)$" $p256 $ed25519 $rsa) $body) -}}
{{- fail (printf "%s: found PEM without a key; expected a public key (ECDSA P-256, Ed25519 or RSA), whole, as `openssl pkey -pubout` or `cosign public-key` prints it" .field) -}}
{{- end -}}
{{- end -}}

{{/* An amount such as 768Mi, in bytes. */}}
{{- define "capstan.bytes" -}}
{{- $text := toString . -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit | default 1.0) | printf "%f" -}}
{{- end -}}
