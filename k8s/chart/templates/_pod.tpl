{{/* Parts of pods that both kinds of nodes and sweeps have, or only the nodes. Each takes (dict "chart" CHART "kind" KIND "node" VALUES "component" NAME):
     KIND is a key of the values; of nodes it is one of a size, too: `dataNode` or `serviceNode`. */}}

{{- define "hsparse.podMetadata" -}}
metadata:
  labels:
    {{- include "hsparse.selector" (list .chart .component) | nindent 4 }}
    app.kubernetes.io/version: {{ .chart.Values.image.tag | default .chart.Chart.AppVersion | quote }}
  {{- $annotations := .node.podAnnotations }}
  {{- if .chart.Values.restartOnChange }}
  {{- $annotations = merge (dict "checksum/settings" (include "hsparse.settings" .chart | sha256sum)) $annotations }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "hsparse.podSettings" -}}
automountServiceAccountToken: false
# Else variables of Services (HSPARSE_PORT=tcp://...) would be taken for settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .node.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  # Makes files of secrets readable for the process.
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .chart.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .node.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .node.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .node.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne .kind "sweep" }}
{{- with .chart.Values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    # Pods of another version, which are about to end, do not count.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "hsparse.selector" (list $.chart $.component) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "hsparse.program" -}}
image: {{ include "hsparse.image" .chart }}
imagePullPolicy: {{ .chart.Values.image.pullPolicy }}
envFrom:
  - configMapRef:
      name: {{ include "hsparse.fullname" .chart }}
  {{- with .chart.Values.store.secret }}
  - secretRef:
      name: {{ . }}
      optional: true
  {{- end }}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Takes (dict "resources" RESOURCES "storage" STORAGE). */}}
{{- define "hsparse.resources" -}}
resources:
  requests:
    {{- toYaml .resources.requests | nindent 4 }}
    ephemeral-storage: {{ .storage.request }}
  limits:
    {{- toYaml .resources.limits | nindent 4 }}
    ephemeral-storage: {{ .storage.limit }}
{{- end -}}

{{- define "hsparse.container" -}}
{{- $sizes := required (printf "%s.size is none of sizes: %s" .kind .node.size) (index .chart.Values.sizes .node.size) -}}
{{- $size := index $sizes .kind -}}
{{ include "hsparse.program" . }}
env:
  - name: HSPARSE_NODE_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ .chart.Values.nodeToken.secret }}
        key: HSPARSE_NODE_TOKEN
  {{- range $name, $value := $size.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- if eq .kind "dataNode" }}
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
  {{- end }}
ports:
  - name: http
    containerPort: {{ .node.port }}
startupProbe:
  httpGet:
    path: /livez
    port: http
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet:
    path: /livez
    port: http
  periodSeconds: 20
  timeoutSeconds: 10
  failureThreshold: 6
{{ include "hsparse.resources" (dict "resources" $size "storage" .chart.Values.ephemeralStorage) }}
{{- end -}}
