{{/* Labels of every object; the first two also select pods. */}}
{{- define "suanpan.selector" -}}
app.kubernetes.io/name: suanpan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "suanpan.labels" -}}
{{ include "suanpan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What the parts are: the port of those that serve, seconds to end in order, and which may run only once. */}}
{{- define "suanpan.parts" -}}
web: {port: 8000, grace: 60}
counter: {grace: 30, single: true}
worker: {grace: 60}
scheduler: {grace: 30, single: true}
{{- end }}

{{- define "suanpan.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* One value as text: numbers of a values file are floats. */}}
{{- define "suanpan.text" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The Secret's name and key of the address with the role that owns the tables, as JSON. */}}
{{- define "suanpan.ownerSecret" -}}
{{- if .Values.database.cloudnativepg.enabled -}}
{{ dict "name" (printf "%s-db-app" .Release.Name) "key" "uri" | toJson }}
{{- else if .Values.secrets.DATABASE_OWNER_URL.name -}}
{{ toJson .Values.secrets.DATABASE_OWNER_URL }}
{{- else -}}
{{ toJson .Values.secrets.DATABASE_URL }}
{{- end }}
{{- end }}

{{/* DATABASE_URL of the parts: with the role of the application, or with the owner where there is no other. */}}
{{- define "suanpan.databaseEnv" -}}
{{- $cluster := .Values.database.cloudnativepg -}}
{{- if and $cluster.enabled $cluster.application.secret -}}
- name: DATABASE_PASSWORD
  valueFrom: {secretKeyRef: {{ dict "name" $cluster.application.secret "key" "password" | toJson }}}
- {name: DATABASE_URL, value: "postgresql://suanpan_app:$(DATABASE_PASSWORD)@{{ .Release.Name }}-db-rw:5432/suanpan"}
{{- else if $cluster.enabled -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {{ include "suanpan.ownerSecret" . }}}
{{- else -}}
- name: DATABASE_URL
  valueFrom: {secretKeyRef: {{ toJson .Values.secrets.DATABASE_URL }}}
{{- end }}
{{- end }}

{{/* DATABASE_OWNER_URL, of the migration only; nothing where there is one role. */}}
{{- define "suanpan.ownerEnv" -}}
{{- $cluster := .Values.database.cloudnativepg -}}
{{- if ternary $cluster.application.secret .Values.secrets.DATABASE_OWNER_URL.name $cluster.enabled -}}
- name: DATABASE_OWNER_URL
  valueFrom: {secretKeyRef: {{ include "suanpan.ownerSecret" . }}}
{{- end }}
{{- end }}

{{- define "suanpan.brokerEnv" -}}
{{- if .Values.broker.enabled -}}
- name: BROKER_PASSWORD
  valueFrom: {secretKeyRef: {{ toJson .Values.broker.password }}}
- {name: BROKER_URL, value: "redis://:$(BROKER_PASSWORD)@{{ .Release.Name }}-broker:6379/0"}
{{- else -}}
- name: BROKER_URL
  valueFrom: {secretKeyRef: {{ toJson .Values.secrets.BROKER_URL }}}
{{- end }}
{{- end }}

{{/* The environment, the same for every part. It is written out and not in a ConfigMap: a change restarts the pods, and
the migration, which runs before anything else is installed, has it too. Of a list: the chart, and DATABASE_URL as a
container lists it. */}}
{{- define "suanpan.envWith" -}}
{{- $database := last . -}}
{{- with first . -}}
{{- $chart := . -}}
{{- $settings := dict -}}
{{- range $name, $value := .Values.settings }}{{ $_ := set $settings $name (include "suanpan.text" $value) }}{{ end -}}
{{- $hosts := list .Values.host $settings.ALLOWED_HOSTS "localhost,127.0.0.1" (printf "%s-web" .Release.Name) -}}
{{- $hosts = concat $hosts (list "$(POD_IP)" "[$(POD_IP)]") -}}
{{- $_ := set $settings "ALLOWED_HOSTS" (compact $hosts | join ",") -}}
{{- if .Values.host }}
{{- range $name := list "CSRF_TRUSTED_ORIGINS" "PORTAL_URL" }}
{{- $_ := set $settings $name (get $settings $name | default (printf "https://%s" $chart.Values.host)) }}
{{- end }}
{{- end }}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{ $database }}
{{ include "suanpan.brokerEnv" . }}
{{- range $name, $reference := omit .Values.secrets "DATABASE_URL" "DATABASE_OWNER_URL" "BROKER_URL" }}
{{- if $reference.name }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {{ toJson $reference }}}
{{- end }}
{{- end }}
{{- range $name, $value := $settings }}
{{- if $value }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "suanpan.env" -}}
{{ include "suanpan.envWith" (list . (include "suanpan.databaseEnv" .)) }}
{{- end }}

{{/* What every pod of ours has in common. */}}
{{- define "suanpan.podDefaults" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "suanpan.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}
