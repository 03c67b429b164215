{{- define "aiocosid.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's name, which has the chart's in it once. */}}
{{- define "aiocosid.fullname" -}}
{{- $name := include "aiocosid.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "aiocosid.selector" -}}
app.kubernetes.io/name: {{ include "aiocosid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "aiocosid.labels" -}}
{{ include "aiocosid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "aiocosid.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "aiocosid.account" -}}
{{- $own := ternary (include "aiocosid.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}
