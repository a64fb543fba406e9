{{/* The name of the installation, which names of its objects begin with. */}}
{{- define "hsparse.fullname" -}}
{{- if contains "hsparse" .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-hsparse" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* Labels of the installation. */}}
{{- define "hsparse.labels" -}}
app.kubernetes.io/name: hsparse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of pods of a kind; these never change. Takes (list CHART COMPONENT). */}}
{{- define "hsparse.selector" -}}
{{ include "hsparse.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "hsparse.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
