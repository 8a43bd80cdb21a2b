{{/* Labels of every object; the name is added, and selects pods. */}}
{{- define "agent.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: suanpan
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "agent.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "agent.privateCa" -}}
{{- with .Values.certificateAuthority }}{{ if or .configMap .secret }}yes{{ end }}{{ end }}
{{- end }}

{{- define "agent.podDefaults" -}}
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

{{/* The container of an agent up to its probes. Of a list: the chart, its values, its arguments. */}}
{{- define "agent.container" -}}
{{- $chart := first . }}{{ $values := index . 1 }}{{ $arguments := index . 2 -}}
name: agent
image: {{ include "agent.image" $chart }}
imagePullPolicy: {{ $chart.Values.image.pullPolicy }}
args:
  {{- range concat $arguments $values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
{{- $env := $chart.Values.extraEnv }}
{{- if include "agent.privateCa" $chart }}
{{- $file := printf "/etc/suanpan-ca/%s" $chart.Values.certificateAuthority.key }}
{{- $env = prepend $env (dict "name" "SSL_CERT_FILE" "value" $file) }}
{{- end }}
{{- with $env }}
env: {{ toJson . }}
{{- end }}
resources: {{ toJson $values.resources }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
volumeMounts:
  - {name: state, mountPath: /var/lib/suanpan}
  - {name: token, mountPath: /run/secrets/suanpan, readOnly: true}
  {{- if include "agent.privateCa" $chart }}
  - {name: ca, mountPath: /etc/suanpan-ca, readOnly: true}
  {{- end }}
{{- end }}

{{- define "agent.volumes" -}}
- name: token
  secret: {secretName: {{ .Values.token.name }}, items: [{key: {{ .Values.token.key }}, path: token}]}
{{- with .Values.certificateAuthority }}
{{- if .configMap }}
- {name: ca, configMap: {name: {{ .configMap }}}}
{{- else if .secret }}
- {name: ca, secret: {secretName: {{ .secret }}}}
{{- end }}
{{- end }}
{{- end }}

{{/* A claim's spec. */}}
{{- define "agent.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources: {requests: {storage: {{ .size }}}}
{{- end }}
