{{/* Names, labels and the pod that all processes share; each process's own file says what differs. */}}

{{- define "switchyard.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "switchyard.labels" -}}
app.kubernetes.io/name: switchyard
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "switchyard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* dict root component: the setting's name by the key in the Secret, for those that this process needs and no other. */}}
{{- define "switchyard.secrets" -}}
{{- $keys := .root.Values.existingSecret.keys -}}
{{- $all := dict "DATABASE_URL" $keys.databaseUrl "SWITCHYARD_OWNER_DATABASE_URL" $keys.ownerDatabaseUrl "REDIS_URL" $keys.redisUrl "SWITCHYARD_SECRET_KEY" $keys.secretKey "SWITCHYARD_KEY_RING" $keys.keyRing "SWITCHYARD_POLICY_TOKEN" $keys.policyToken "SWITCHYARD_METRICS_TOKEN" $keys.metricsToken "SWITCHYARD_MAIL_URL" $keys.mailUrl -}}
{{- $needs := dict
  "migrate" (list "DATABASE_URL" "SWITCHYARD_OWNER_DATABASE_URL")
  "web" (list "DATABASE_URL" "REDIS_URL" "SWITCHYARD_SECRET_KEY" "SWITCHYARD_KEY_RING" "SWITCHYARD_POLICY_TOKEN" "SWITCHYARD_METRICS_TOKEN" "SWITCHYARD_MAIL_URL")
  "worker" (list "DATABASE_URL" "REDIS_URL" "SWITCHYARD_KEY_RING" "SWITCHYARD_METRICS_TOKEN" "SWITCHYARD_MAIL_URL")
  "beat" (list "DATABASE_URL" "REDIS_URL" "SWITCHYARD_KEY_RING" "SWITCHYARD_METRICS_TOKEN" "SWITCHYARD_MAIL_URL")
  "observer" (list "DATABASE_URL" "SWITCHYARD_KEY_RING" "SWITCHYARD_METRICS_TOKEN")
-}}
{{- range $name := index $needs .component }}
{{- with index $all $name }}
{{ $name }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* dict root component: whether this process writes the file of audit anchors. Others get neither the claim nor the setting. */}}
{{- define "switchyard.anchors" -}}
{{- if hasKey (default (dict) .root.Values.settings.extra) "SWITCHYARD_AUDIT_ANCHORS" -}}
{{- fail "set auditAnchors.existingClaim instead of settings.extra.SWITCHYARD_AUDIT_ANCHORS: pods have no lasting folder of their own" -}}
{{- end -}}
{{- if and .root.Values.auditAnchors.existingClaim (has .component (list "worker" "beat")) -}}true{{- end -}}
{{- end -}}

{{- define "switchyard.environment" -}}
{{- range $name, $_ := include "switchyard.secrets" . | fromYaml }}
- name: {{ $name }}_FILE
  value: /run/secrets/switchyard/{{ $name }}
{{- end }}
{{- if include "switchyard.anchors" . }}
- name: SWITCHYARD_AUDIT_ANCHORS
  value: /var/lib/switchyard-anchors/anchors.jsonl
{{- end }}
{{- with .root }}
- name: SWITCHYARD_ALLOWED_HOSTS
  value: {{ append .Values.settings.allowedHosts "localhost" | join "," | quote }}
- name: SWITCHYARD_TRUSTED_ORIGINS
  value: {{ join "," .Values.settings.trustedOrigins | quote }}
- name: SWITCHYARD_SECURE_COOKIES
  value: {{ ternary "1" "0" .Values.settings.secureCookies | quote }}
- name: SWITCHYARD_EGRESS_ALLOW
  value: {{ join "," .Values.settings.egressAllow | quote }}
- name: SWITCHYARD_TRUSTED_PROXIES
  value: {{ join "," .Values.settings.trustedProxies | quote }}
- name: SWITCHYARD_INSTALL_ID
  value: {{ .Values.settings.installId | quote }}
{{- range $name, $value := .Values.settings.extra }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* dict root component resources command [ports] [probes] [restartPolicy] [drainSeconds] */}}
{{- define "switchyard.pod" -}}
metadata:
  labels:
    {{- include "switchyard.labels" . | nindent 4 }}
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # The gateway talks to its clusters with credentials of its own, never with this pod's.
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Longer than the worker's soft shutdown; for web, the drain and then what is under way.
  terminationGracePeriodSeconds: {{ add 30 (default 0 .drainSeconds) }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: {{ .component }}
      image: {{ include "switchyard.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: {{ toJson .command }}
      env:
        {{- include "switchyard.environment" . | nindent 8 }}
        {{- with .drainSeconds }}
        - name: SWITCHYARD_DRAIN_SECONDS
          value: {{ . | quote }}
        {{- end }}
      {{- if ne .component "migrate" }}
      ports:
        {{- toYaml (append (default (list) .ports) (dict "name" "metrics" "containerPort" 8002)) | nindent 8 }}
      {{- end }}
      {{- with .probes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: secrets, mountPath: /run/secrets/switchyard, readOnly: true}
        {{- if include "switchyard.anchors" . }}
        - name: audit-anchors
          mountPath: /var/lib/switchyard-anchors
          {{- with .root.Values.auditAnchors.subPath }}
          subPath: {{ . | quote }}
          {{- end }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    # As files: an environment shows up in core dumps, in /proc and in whatever a library reports.
    - name: secrets
      secret:
        secretName: {{ required "existingSecret.name is required" .root.Values.existingSecret.name }}
        defaultMode: 0400
        items:
          {{- range $name, $key := include "switchyard.secrets" . | fromYaml }}
          - {key: {{ $key | quote }}, path: {{ $name }}}
          {{- end }}
    {{- if include "switchyard.anchors" . }}
    - name: audit-anchors
      persistentVolumeClaim:
        claimName: {{ .root.Values.auditAnchors.existingClaim | quote }}
    {{- end }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* dict root component: what Prometheus' operator scrapes, each pod for itself, with the gateway's token. */}}
{{- define "switchyard.monitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "switchyard.name" .root }}-{{ .component }}
  labels:
    {{- include "switchyard.labels" . | nindent 4 }}
    {{- with .root.Values.metrics.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "switchyard.labels" . | nindent 6 }}
  podMetricsEndpoints:
    - port: metrics
      path: /metrics
      authorization:
        credentials:
          name: {{ .root.Values.existingSecret.name }}
          key: {{ required "existingSecret.keys.metricsToken is required with metrics.podMonitors" .root.Values.existingSecret.keys.metricsToken }}
{{- end -}}

{{/* dict root component values command [ports] [probes] [drainSeconds] */}}
{{- define "switchyard.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "switchyard.name" .root }}-{{ .component }}
  labels:
    {{- include "switchyard.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  # A new pod is ready before an old one is told to end.
  strategy:
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:
      {{- include "switchyard.labels" . | nindent 6 }}
  template:
    {{- include "switchyard.pod" (merge (dict "resources" .values.resources) .) | nindent 4 }}
{{- if .root.Values.metrics.podMonitors }}
---
{{ include "switchyard.monitor" . }}
{{- end }}
{{- end -}}
