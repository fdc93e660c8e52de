{{/*
The rules of RBAC that the operators of the values lead to: the same as `capstan rbac` prints for them. What a declaration means in verbs
is in files/rbac.yaml, which the daemon is built with as well.
*/}}

{{/*
Returns who needs which rules, as JSON: `daemon`, and below `accounts` each service account of an operator, as `namespace name`; `granted` has
by resource the names of what the daemon reads in its own namespace: kubeconfigs, what has values of `config`, and the tokens of inbound sources. The daemon watches what is to be cached for an operator with an account, and no more.

Rules are by where they hold: "" is the whole cluster, else a namespace. Below that, by `group resource`, the verbs in order.
*/}}
{{- define "capstan.rbac.rights" -}}
{{- $table := .Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $base := dict "table" $table "rbac" .Values.rbac "defaults" .Values.defaults "own" .Release.Namespace -}}
{{- $daemon := dict -}}
{{- $shared := dict -}}
{{- $accounts := dict -}}
{{- $secrets := list -}}
{{- $maps := list -}}
{{- range $operator := .Values.operators -}}
{{- $clusters := default dict $operator.manifest.spec.clusters -}}
{{- range default dict $operator.manifest.spec.plugins -}}
{{- range default dict .configFrom -}}
{{- $secrets = append $secrets (dig "secret" "name" "" .) -}}
{{- $maps = append $maps (dig "configMap" "name" "" .) -}}
{{- end -}}
{{- $component := default dict .component -}}
{{- $secrets = concat $secrets (list (default "" $component.pullSecret) (dig "ca" "secret" "name" "" $component)) -}}
{{- $maps = append $maps (dig "ca" "configMap" "name" "" $component) -}}
{{- end -}}
{{- $found := $daemon -}}
{{- with $operator.manifest.spec.serviceAccount -}}
{{- $account := printf "%s %s" (default $base.own .namespace) .name -}}
{{- if not (hasKey $accounts $account) -}}{{- $_ := set $accounts $account dict -}}{{- end -}}
{{- $found = get $accounts $account -}}
{{- end -}}
{{- $tally := merge (dict "found" $found) $base -}}
{{- range $controller := default dict $operator.manifest.spec.controllers -}}
{{- /* The kubeconfigs of other clusters that it uses. What it needs there, their accounts have. */ -}}
{{- $used := list $controller.cluster -}}
{{- range default dict $controller.sources -}}{{- $used = append $used (dig "informer" "cluster" "" .) -}}{{- end -}}
{{- range default dict $controller.sources -}}
{{- $token := dig "inbound" "token" "" . -}}
{{- if kindIs "map" $token -}}{{- $secrets = append $secrets (dig "secret" "name" "" $token) -}}{{- end -}}
{{- end -}}
{{- range $used | compact -}}
{{- $secrets = append $secrets (dig "kubeconfig" "secret" "name" "" (default dict (get $clusters .))) -}}
{{- end -}}
{{- if not $controller.cluster -}}
{{- if kindIs "map" $controller.namespaces -}}
{{- /* The daemon finds out in its own name which namespaces are selected. */ -}}
{{- $namespace := dict "apiVersion" "v1" "kind" "Namespace" -}}
{{- include "capstan.rbac.permit" (dict "tally" (merge (dict "found" $daemon) $base) "object" $namespace "namespaces" "all" "verbs" $table.watched) -}}
{{- end -}}
{{- include "capstan.rbac.controller" (dict "tally" $tally "controller" $controller) -}}
{{- if $operator.manifest.spec.serviceAccount -}}
{{- include "capstan.rbac.controller" (dict "tally" (merge (dict "found" $shared) $base) "controller" $controller) -}}
{{- end -}}
{{- $plugin := default dict (get (default dict $operator.manifest.spec.plugins) (default "" $controller.plugin)) -}}
{{- range $grant := default list (dig "capabilities" "kubernetes" list $plugin) -}}
{{- include "capstan.rbac.capability" (dict "tally" $tally "grant" $grant "controller" $controller) -}}
{{- if $operator.manifest.spec.serviceAccount -}}
{{- include "capstan.rbac.capability" (dict "tally" (merge (dict "found" $shared) $base) "grant" $grant "controller" $controller) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $reach, $resources := $shared -}}
{{- $here := default dict (get $daemon $reach) -}}
{{- range $resource, $verbs := $resources -}}
{{- range $verb := $verbs -}}
{{- if has $verb $table.watched -}}{{- $_ := set $here $resource (append (default list (get $here $resource)) $verb) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set $daemon $reach $here -}}
{{- end -}}
{{- $rights := dict -}}
{{- range $account, $found := $accounts -}}
{{- $_ := set $rights $account (include "capstan.rbac.rules" (dict "found" $found "table" $table) | fromJson) -}}
{{- end -}}
{{- $rules := include "capstan.rbac.rules" (dict "found" $daemon "table" $table) | fromJson -}}
{{- toJson (dict "daemon" $rules "accounts" $rights "granted" (dict "configmaps" ($maps | compact | uniq | sortAlpha) "secrets" ($secrets | compact | uniq | sortAlpha))) -}}
{{- end -}}

{{/* Returns what a tally has found as JSON, without what is allowed in the whole cluster already. */}}
{{- define "capstan.rbac.rules" -}}
{{- $table := .table -}}
{{- $everywhere := default dict (get .found "") -}}
{{- $rules := dict -}}
{{- range $reach, $resources := .found -}}
{{- $here := dict -}}
{{- range $resource, $verbs := $resources -}}
{{- $sorted := list -}}
{{- range $verb := $table.order -}}
{{- /* What is allowed everywhere need not be repeated for a namespace. */ -}}
{{- if and (has $verb $verbs) (not (and $reach (has $verb (default list (get $everywhere $resource))))) -}}
{{- $sorted = append $sorted $verb -}}
{{- end -}}
{{- end -}}
{{- if $sorted -}}{{- $_ := set $here $resource $sorted -}}{{- end -}}
{{- end -}}
{{- if $here -}}{{- $_ := set $rules $reach $here -}}{{- end -}}
{{- end -}}
{{- toJson $rules -}}
{{- end -}}

{{/*
Returns who needs which rules in a namespace with a ceiling, as JSON: `daemon`, for the operators there and what they may watch, and `account`.
*/}}
{{- define "capstan.rbac.ceiling" -}}
{{- $table := .root.Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $watched := dict "capstan.dev operators" (list "get" "list" "watch") " events" $table.events -}}
{{- $all := dict -}}
{{- range $rule := .ceiling.rules -}}
{{- range $group := $rule.apiGroups -}}
{{- range $resource := $rule.resources -}}
{{- $key := printf "%s %s" $group $resource -}}
{{- $_ := set $all $key (concat (default list (get $all $key)) $rule.verbs) -}}
{{- range $verb := $rule.verbs -}}
{{- if has $verb $table.watched -}}{{- $_ := set $watched $key (append (default list (get $watched $key)) $verb) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $daemon := include "capstan.rbac.rules" (dict "found" (dict .namespace $watched) "table" $table) | fromJson -}}
{{- $account := include "capstan.rbac.rules" (dict "found" (dict .namespace $all) "table" $table) | fromJson -}}
{{- toJson (dict "daemon" $daemon "account" $account) -}}
{{- end -}}

{{/*
Returns the name of a role that holds in a namespace, or in the whole cluster if that is empty. Elsewhere than in the release's namespace there may be
those of releases of the same name.
*/}}
{{- define "capstan.rbac.name" -}}
{{- $own := .root.Release.Namespace -}}
{{- ternary .role (printf "%s:%s" $own .role) (eq .reach $own) -}}
{{- end -}}

{{/* Returns roles with these rules, by where they hold, bound to a service account. */}}
{{- define "capstan.rbac.bound" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $account := .account -}}
{{- $namespace := .namespace -}}
{{- $names := .names -}}
{{- range $reach, $resources := .rules }}
{{- $role := include "capstan.rbac.name" (dict "root" $root "role" $role "reach" $reach) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (ne $reach "") }}
metadata:
  name: {{ $role | quote }}
  {{- with $reach }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "capstan.labels" $root | nindent 4 }}
rules:
  {{- range $resource, $verbs := $resources }}
  {{- $parts := splitn " " 2 $resource }}
  - apiGroups: [{{ $parts._0 | quote }}]
    resources: [{{ $parts._1 | quote }}]
    verbs: [{{ join ", " $verbs }}]
    {{- with $names }}
    resourceNames: {{ toJson . }}
    {{- end }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (ne $reach "") }}
metadata:
  name: {{ $role | quote }}
  {{- with $reach }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "capstan.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ ternary "Role" "ClusterRole" (ne $reach "") }}
  name: {{ $role | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $namespace }}
{{- end }}
{{- end -}}

{{/* The verbs of those for whom a role of Kubernetes collects others: `view`, `edit` or `admin`. */}}
{{- define "capstan.rbac.people" -}}
{{- $read := list "get" "list" "watch" -}}
{{- toJson (ternary $read (concat $read (list "create" "update" "patch" "delete")) (eq . "view")) -}}
{{- end -}}

{{/* Returns the rules for the primaries of the values' operators, as JSON, from a dict of root and verbs. Kinds of Kubernetes itself are left out. */}}
{{- define "capstan.rbac.primaries" -}}
{{- $verbs := .verbs -}}
{{- $table := .root.Files.Get "files/rbac.yaml" | fromYaml -}}
{{- $tally := dict "found" dict "table" $table "rbac" .root.Values.rbac "own" .root.Release.Namespace -}}
{{- range $operator := .root.Values.operators -}}
{{- range default dict $operator.manifest.spec.controllers -}}
{{- $group := include "capstan.rbac.group" .primary -}}
{{- if and (not .cluster) (contains "." $group) (not (hasSuffix ".k8s.io" $group)) -}}
{{- $permit := dict "tally" $tally "object" .primary "namespaces" "all" -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $verbs) $permit) -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" (list "get") "subresource" "status") $permit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "capstan.rbac.rules" (dict "found" $tally.found "table" $table) -}}
{{- end -}}

{{/* Returns a role for people that a role of Kubernetes collects, from a dict of root, role, collector and its resources with their verbs. */}}
{{- define "capstan.rbac.collected" -}}
{{- if .resources }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "capstan.rbac.name" (dict "root" .root "role" (printf "%s:aggregate-to-%s" .role .collector) "reach" "") | quote }}
  labels:
    rbac.authorization.k8s.io/aggregate-to-{{ .collector }}: "true"
    {{- include "capstan.labels" .root | nindent 4 }}
rules:
  {{- range $resource, $verbs := .resources }}
  {{- $parts := splitn " " 2 $resource }}
  - apiGroups: [{{ $parts._0 | quote }}]
    resources: [{{ $parts._1 | quote }}]
    verbs: [{{ join ", " $verbs }}]
  {{- end }}
{{- end }}
{{- end -}}

{{/* Adds the rules of a controller to the tally. */}}
{{- define "capstan.rbac.controller" -}}
{{- $tally := .tally -}}
{{- $controller := .controller -}}
{{- $namespaces := $controller.namespaces -}}
{{- $primary := dict "tally" $tally "object" $controller.primary "namespaces" $namespaces -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $tally.table.watched) $primary) -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $tally.table.primary.object) $primary) -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $tally.table.primary.status "subresource" "status") $primary) -}}
{{- /* Events about objects that live in no namespace are in `default`. */ -}}
{{- $aside := ternary (list "default") $namespaces (eq "true" (include "capstan.rbac.isClusterScoped" $primary)) -}}
{{- $event := dict "apiVersion" "v1" "kind" "Event" -}}
{{- include "capstan.rbac.permit" (dict "tally" $tally "object" $event "namespaces" $aside "verbs" $tally.table.events) -}}
{{- range $source := default dict $controller.sources -}}
{{- with $source.informer -}}
{{- if not .cluster -}}
{{- $where := default $namespaces .namespaces -}}
{{- include "capstan.rbac.permit" (dict "tally" $tally "object" . "namespaces" $where "verbs" $tally.table.watched) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $controller.workflow -}}
{{- include "capstan.rbac.workflow" (dict "tally" $tally "controller" $controller "dependents" .dependents "byName" false) -}}
{{- end -}}
{{- range default dict $controller.standalone -}}
{{- include "capstan.rbac.workflow" (dict "tally" $tally "controller" $controller "dependents" .dependents "byName" true) -}}
{{- end -}}
{{- end -}}

{{/* Adds the rules of a workflow's dependents to the tally. */}}
{{- define "capstan.rbac.workflow" -}}
{{- $tally := .tally -}}
{{- $controller := .controller -}}
{{- $dependents := default dict .dependents -}}
{{- $byName := .byName -}}
{{- /* What conditions may turn off, with all that depends on it; looked at so often that the end of the longest chain is reached. */ -}}
{{- $unwanted := dict -}}
{{- range $dependents -}}
{{- range $name, $dependent := $dependents -}}
{{- if or $dependent.activation $dependent.reconcilePrecondition -}}{{- $_ := set $unwanted $name true -}}{{- end -}}
{{- range $dependent.dependsOn -}}
{{- if hasKey $unwanted . -}}{{- $_ := set $unwanted $name true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $declared := $dependents -}}
{{- /* Of what is outside of the cluster there are only the objects that remember it. */ -}}
{{- $dependent := $declared -}}
{{- with $declared.external -}}
{{- $dependent = dict -}}
{{- with .state -}}{{- $dependent = dict "apiVersion" .apiVersion "kind" .kind "bulk" true -}}{{- end -}}
{{- end -}}
{{- if $dependent -}}
{{- $namespaces := $controller.namespaces -}}
{{- with $dependent.source -}}
{{- $source := default dict (get (default dict $controller.sources) .) -}}
{{- $namespaces = default $namespaces (dig "informer" "namespaces" nil $source) -}}
{{- end -}}
{{- $permit := dict "tally" $tally "object" $dependent "namespaces" $namespaces -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $tally.table.watched) $permit) -}}
{{- $written := eq (include "capstan.rbac.isUsuallyWritten" (dict "tally" $tally "dependent" $dependent)) "true" -}}
{{- with $dependent.serverSideApply | toString -}}
{{- if has . (list "true" "false") -}}{{- $written = eq . "false" -}}{{- end -}}
{{- end -}}
{{- $needs := ternary $tally.table.dependent.written $tally.table.dependent.applied $written -}}
{{- $manage := list "create" "update" "delete" -}}
{{- if kindIs "slice" $dependent.manage -}}{{- $manage = $dependent.manage -}}{{- end -}}
{{- if $dependent.readOnly -}}{{- $manage = list -}}{{- end -}}
{{- if $dependent.adopt -}}{{- $manage = append $manage "update" -}}{{- end -}}
{{- $collected := ne (toString $dependent.garbageCollected) "false" -}}
{{- range $manage -}}
{{- if or (ne . "delete") $byName (not $collected) (hasKey $unwanted $name) (eq (toString $dependent.onRename) "delete") (eq (toString $dependent.onImmutable) "recreate") (eq (toString $dependent.bulk) "true") -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" (get $needs .)) $permit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Says whether a dependent's kind is not applied unless the dependent says so (KD-5), by the defaults of the daemon. */}}
{{- define "capstan.rbac.isUsuallyWritten" -}}
{{- $kind := .dependent.kind -}}
{{- $group := ternary (first (splitList "/" .dependent.apiVersion)) "" (contains "/" .dependent.apiVersion) -}}
{{- $usual := default dict (default dict .tally.defaults).dependents -}}
{{- $written := eq (toString $usual.serverSideApply) "false" -}}
{{- if kindIs "slice" $usual.serverSideApplyExcept -}}
{{- range $usual.serverSideApplyExcept -}}
{{- $other := ternary (first (splitList "/" .apiVersion)) "" (contains "/" .apiVersion) -}}
{{- $written = or $written (and (eq $other $group) (eq .kind $kind)) -}}
{{- end -}}
{{- else -}}
{{- $written = or $written (and (not $group) (has $kind .tally.table.written)) -}}
{{- end -}}
{{- $written -}}
{{- end -}}

{{/* Adds the rules of what a plugin is permitted to the tally. */}}
{{- define "capstan.rbac.capability" -}}
{{- $namespaces := default .controller.namespaces .grant.namespaces -}}
{{- $permit := dict "tally" .tally "object" .grant "namespaces" $namespaces -}}
{{- /* For a kind that lives in no namespace a grant has to say `all`, unless the controller writes that kind anyway. */ -}}
{{- $reach := or (ne "true" (include "capstan.rbac.isClusterScoped" $permit)) (eq (toString .grant.namespaces) "all") -}}
{{- if or $reach (eq "true" (include "capstan.rbac.isWritten" (dict "controller" .controller "grant" .grant))) -}}
{{- $table := .tally.table.capabilities -}}
{{- $subresources := default list (get (default dict .tally.rbac.subresources) (include "capstan.rbac.kind" .grant)) -}}
{{- range .grant.verbs -}}
{{- $verbs := get $table . -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $verbs) $permit) -}}
{{- /* Nobody watches a subresource. */ -}}
{{- if ne . "watch" -}}
{{- range $subresources -}}
{{- include "capstan.rbac.permit" (merge (dict "verbs" $verbs "subresource" .) $permit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a controller writes objects of a kind by itself, its primaries and dependents: true, or nothing. */}}
{{- define "capstan.rbac.isWritten" -}}
{{- $kinds := list .controller.primary -}}
{{- $workflows := concat (list (default dict .controller.workflow)) (values (default dict .controller.standalone)) -}}
{{- range $workflows -}}
{{- range default dict .dependents -}}
{{- $kinds = append $kinds (ternary (dig "external" "state" dict .) . (hasKey . "external")) -}}
{{- end -}}
{{- end -}}
{{- $grant := .grant -}}
{{- $found := false -}}
{{- range $kinds -}}
{{- if and (eq (toString .apiVersion) $grant.apiVersion) (eq (toString .kind) $grant.kind) -}}{{- $found = true -}}{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end -}}

{{/* Adds verbs on a kind to the tally. */}}
{{- define "capstan.rbac.permit" -}}
{{- $tally := .tally -}}
{{- $verbs := .verbs -}}
{{- $kind := include "capstan.rbac.kind" .object -}}
{{- $plurals := merge dict (default dict $tally.rbac.plurals) $tally.table.plurals -}}
{{- $resource := default (include "capstan.rbac.guess" .object.kind) (get $plurals $kind) -}}
{{- with .subresource -}}{{- $resource = printf "%s/%s" $resource . -}}{{- end -}}
{{- $key := printf "%s %s" (include "capstan.rbac.group" .object) $resource -}}
{{- $reaches := .namespaces -}}
{{- /* Any namespace may come to be selected. */ -}}
{{- if or (not $reaches) (kindIs "map" $reaches) (eq (toString $reaches) "all") (eq "true" (include "capstan.rbac.isClusterScoped" .)) -}}
{{- $reaches = list "" -}}
{{- else if eq (toString $reaches) "own" -}}
{{- $reaches = list $tally.own -}}
{{- end -}}
{{- if $verbs -}}
{{- range $reaches -}}
{{- $here := default dict (get $tally.found .) -}}
{{- $_ := set $here $key (concat (default list (get $here $key)) $verbs) -}}
{{- $_ := set $tally.found . $here -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The API group of an object. */}}
{{- define "capstan.rbac.group" -}}
{{- if contains "/" .apiVersion -}}{{- splitList "/" .apiVersion | first -}}{{- end -}}
{{- end -}}

{{/* The kind of an object as KIND.GROUP, or KIND in the core group. */}}
{{- define "capstan.rbac.kind" -}}
{{- list .kind (include "capstan.rbac.group" .) | compact | join "." -}}
{{- end -}}

{{/* Whether objects of a kind live in no namespace: true, or nothing. */}}
{{- define "capstan.rbac.isClusterScoped" -}}
{{- $known := concat .tally.table.clusterScoped (default list .tally.rbac.clusterScoped) -}}
{{- if has (include "capstan.rbac.kind" .object) $known -}}true{{- end -}}
{{- end -}}

{{/* The plural of a kind, as English mostly has it. */}}
{{- define "capstan.rbac.guess" -}}
{{- $kind := lower . -}}
{{- if hasSuffix "endpoints" $kind -}}{{- $kind -}}
{{- else if regexMatch "[^aeiou]y$" $kind -}}{{- trimSuffix "y" $kind -}}ies
{{- else if regexMatch "(ch|sh|s|x|z)$" $kind -}}{{- $kind -}}es
{{- else -}}{{- $kind -}}s
{{- end -}}
{{- end -}}
