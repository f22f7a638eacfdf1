{{- define "milliscale.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 40 characters: a StatefulSet's name has at most 52. */ -}}
{{- define "milliscale.fullname" -}}
{{- $name := include "milliscale.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $name = .Release.Name -}}
{{- else -}}
{{- $name = printf "%s-%s" .Release.Name $name -}}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "milliscale.adapter" -}}
{{ include "milliscale.fullname" . }}-adapter
{{- end -}}

{{- define "milliscale.autoscaler" -}}
{{ include "milliscale.fullname" . }}-autoscaler
{{- end -}}

{{- define "milliscale.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "milliscale.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "milliscale.prometheusURL" -}}
{{ tpl .Values.prometheus.url . }}{{ with .Values.prometheus.port }}:{{ . }}{{ end }}{{ .Values.prometheus.path }}
{{- end -}}

{{- /* The rules file. */ -}}
{{- define "milliscale.rules" -}}
{{- $custom := .Values.rules.custom | default list -}}
{{- if .Values.rules.default -}}
{{- $custom = concat (.Files.Get "files/default-rules.yaml" | fromYamlArray) $custom -}}
{{- end -}}
{{- $rules := dict -}}
{{- with $custom }}{{ $_ := set $rules "rules" . }}{{ end -}}
{{- with .Values.rules.external }}{{ $_ := set $rules "externalRules" . }}{{ end -}}
{{- with .Values.rules.resource }}{{ $_ := set $rules "resourceRules" . }}{{ end -}}
{{- with .Values.rules.prometheusServers }}{{ $_ := set $rules "prometheusServers" . }}{{ end -}}
{{- with .Values.rules.forwardExternal }}{{ $_ := set $rules "forwardExternal" . }}{{ end -}}
{{- toYaml $rules -}}
{{- end -}}

{{- /* (root, component): the labels that select pods. */ -}}
{{- define "milliscale.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "milliscale.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /* (root, component, more labels): the labels of a pod. */ -}}
{{- define "milliscale.podLabels" -}}
{{- $root := index . 0 -}}
{{- $labels := include "milliscale.selectorLabels" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/part-of" (include "milliscale.name" $root) -}}
{{- merge $labels (index . 2 | default dict) $root.Values.customLabels | toYaml -}}
{{- end -}}

{{- /* (root, component, more labels): the labels of an object. Pods have no label that changes with the chart's version. */ -}}
{{- define "milliscale.labels" -}}
{{- $root := index . 0 -}}
{{- include "milliscale.podLabels" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /*
The metadata of an object. root, name, component; optional: cluster (it has no namespace), namespace, labels, annotations.
*/ -}}
{{- define "milliscale.metadata" -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .namespace | default (include "milliscale.namespace" .root) | quote }}
{{- end }}
labels:
  {{- include "milliscale.labels" (list .root .component .labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.customAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "milliscale.adapterAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "milliscale.adapter" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "milliscale.autoscalerAccount" -}}
{{- $account := .Values.autoscaler.serviceAccount -}}
{{- $account.name | default (ternary (include "milliscale.autoscaler" .) "default" $account.create) -}}
{{- end -}}

{{- /* (root, process): the subject of the process' bindings. */ -}}
{{- define "milliscale.subjects" -}}
{{- $root := index . 0 -}}
- kind: ServiceAccount
  name: {{ include (printf "milliscale.%sAccount" (index . 1)) $root | quote }}
  namespace: {{ include "milliscale.namespace" $root | quote }}
{{- end -}}

{{- /* (root, component): the affinity of highAvailability, unless values have one. */ -}}
{{- define "milliscale.affinity" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
  - topologyKey: kubernetes.io/hostname
    labelSelector:
      matchLabels:
        {{- include "milliscale.selectorLabels" . | nindent 8 }}
{{- end -}}

{{- /*
(root, component): different nodes if possible, or zones where nodes are required to differ, unless values have some. Only
pods of the same version count, or two new pods would avoid an old one that ends.
*/ -}}
{{- define "milliscale.spread" -}}
- topologyKey: {{ (index . 0).Values.highAvailability.enabled | ternary "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "milliscale.selectorLabels" . | nindent 6 }}
{{- end -}}

{{- /* (whether a further pod of a rollout may need a further node): then an old pod ends first. */ -}}
{{- define "milliscale.strategy" -}}
type: RollingUpdate
rollingUpdate:
{{- if . }}
  maxSurge: 0
  maxUnavailable: 1
{{- else }}
  maxSurge: 1
  maxUnavailable: 0
{{- end }}
{{- end -}}

{{- /* (root, values of the process, component): what both processes' pods have besides containers. */ -}}
{{- define "milliscale.pod" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- $component := index . 2 -}}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if $root.Values.highAvailability.enabled }}
affinity:
  {{- include "milliscale.affinity" (list $root $component) | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  {{- include "milliscale.spread" (list $root $component) | nindent 2 }}
  {{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* (values, name, default): whether an API group is registered. */ -}}
{{- define "milliscale.registered" -}}
{{- $chosen := index (index . 0).apiService (index . 1) -}}
{{- if kindIs "invalid" $chosen | ternary (index . 2) $chosen }}true{{ end -}}
{{- end -}}

{{- /* Whether the API server can verify the adapter's certificate. */ -}}
{{- define "milliscale.verified" -}}
{{- if or .Values.certManager.enabled .Values.tls.enable }}true{{ end -}}
{{- end -}}

{{- define "milliscale.tlsSecret" -}}
{{- if and .Values.tls.enable .Values.tls.existingSecret -}}
{{ .Values.tls.existingSecret }}
{{- else -}}
{{ include "milliscale.adapter" . }}-tls
{{- end -}}
{{- end -}}
