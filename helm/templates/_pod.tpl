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

{{- define "switchyard.environment" -}}
{{- $keys := .Values.existingSecret.keys -}}
{{- range $name, $key := dict "DATABASE_URL" $keys.databaseUrl "REDIS_URL" $keys.redisUrl "SWITCHYARD_SECRET_KEY" $keys.secretKey "SWITCHYARD_KEY_RING" $keys.keyRing }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ required "existingSecret.name is required" $.Values.existingSecret.name }}
      key: {{ $key }}
{{- end }}
{{- with $keys.policyToken }}
- name: SWITCHYARD_POLICY_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.existingSecret.name }}
      key: {{ . }}
{{- end }}
- name: SWITCHYARD_ALLOWED_HOSTS
  value: {{ append .Values.settings.allowedHosts "localhost" | join "," | quote }}
- name: SWITCHYARD_TRUSTED_ORIGINS
  value: {{ join "," .Values.settings.trustedOrigins | quote }}
- name: SWITCHYARD_SECURE_COOKIES
  value: {{ ternary "1" "0" .Values.settings.secureCookies | quote }}
- name: SWITCHYARD_EGRESS_ALLOW
  value: {{ join "," .Values.settings.egressAllow | quote }}
- name: SWITCHYARD_INSTALL_ID
  value: {{ .Values.settings.installId | quote }}
{{- range $name, $value := .Values.settings.extra }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* dict root component resources command [environment] [ports] [probes] [restartPolicy] */}}
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
  terminationGracePeriodSeconds: 30
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
        {{- include "switchyard.environment" .root | nindent 8 }}
        {{- with .environment }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .ports }}
      ports:
        {{- toYaml . | nindent 8 }}
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
  volumes:
    - name: tmp
      emptyDir: {}
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

{{/* dict root component values command [ports] [probes] */}}
{{- define "switchyard.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "switchyard.name" .root }}-{{ .component }}
  labels:
    {{- include "switchyard.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      {{- include "switchyard.labels" . | nindent 6 }}
  template:
    {{- include "switchyard.pod" (merge (dict "resources" .values.resources) .) | nindent 4 }}
{{- end -}}
