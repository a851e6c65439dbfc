"""The components' command lines and health addresses."""

import sys
from dataclasses import dataclass
from pathlib import Path

from .kubelet import RUNS_LABEL

STAGES = Path(__file__).parent / "stages.yaml"
CONTROLLERS = (
    "job-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "resourcequota-controller",
    "resourceclaim-controller",
)
NODE_CONTROLLERS = ("node-lifecycle-controller", "taint-eviction-controller")
KUBELET_CONTROLLERS = (
    "root-ca-certificate-publisher-controller",  # a pod's token volume has the API server's authority beside the token
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
)
HEALTH = {
    "etcd": "http://127.0.0.1:{port}/health",
    "kube-apiserver": "https://127.0.0.1:{port}/readyz",
    "kube-controller-manager": "https://127.0.0.1:{port}/healthz",
    "kube-scheduler": "https://127.0.0.1:{port}/readyz",
    "kwok": "http://127.0.0.1:{port}/healthz",
    "kubelet": "https://127.0.0.1:{port}/healthz",
}
WITH_CERTIFICATES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROJECT = Path(__file__).resolve().parents[2]
NAMESPACES = Path(__file__).parent / "kubelet" / "namespaces.py"


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a control plane besides etcd and kube-apiserver.

    `controllers`: controller manager and scheduler, so that jobs create pods and pods are bound. `kwok`: nodes have
    kubelets, so that pods run. `fast`: 500 requests a second for controllers instead of Kubernetes' default 20, which
    saves tests seconds; leave it off for published latencies. `audit`: every change to a Job or Pod is written to
    `audit.jsonl`, a record that no client can change. `kubelet`: the test kubelet runs the pods of nodes that are labelled
    for it, and KWOK leaves these alone.
    """

    controllers: bool = True
    kwok: bool = True
    fast: bool = True
    audit: bool = False
    kubelet: bool = False

    @property
    def after_apiserver(self) -> tuple[str, ...]:
        """The components that need a running API server."""
        return (("kube-controller-manager", "kube-scheduler") if self.controllers else ()) + (
            (("kwok",) if self.kwok else ()) + (("kubelet",) if self.kubelet else ())
        )

    @property
    def components(self) -> tuple[str, ...]:
        """All components in the order of their start."""
        return ("etcd", "kube-apiserver", *self.after_apiserver)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one control plane keeps its files, and its ports."""

    name: str
    root: Path
    parts: Parts
    ports: dict[str, int]
    admin_token: str

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def ca_file(self) -> Path:
        """The API server's certificate, which is its own authority."""
        return self.root / "certs" / "apiserver.crt"

    def certificate(self, component: str) -> Path:
        """The file of a component's certificate, beside its key, where the component looks for both before it makes them."""
        return self.ca_file if component == "kube-apiserver" else self.root / component / f"{component}.crt"

    @property
    def service_account_key(self) -> Path:
        """The key that signs ServiceAccount tokens."""
        return self.root / "sa.key"

    @property
    def tokens(self) -> Path:
        """The static token file."""
        return self.root / "tokens.csv"

    @property
    def kubelet_certificate(self) -> Path:
        """The one certificate that the test kubelet and the API server show each other."""
        return self.root / "kubelet.crt"

    @property
    def kubelet_key(self) -> Path:
        """Its private key."""
        return self.root / "kubelet.key"

    @property
    def kubelet_folder(self) -> Path:
        """Where the test kubelet mounts its own file system; always empty for others."""
        return self.root / "kubelet"

    @property
    def claims(self) -> Path:
        """A folder for each PersistentVolumeClaim that a pod of the test kubelet has used."""
        return self.root / "claims"

    @property
    def audit_log(self) -> Path:
        """Every change to a Job or Pod, one JSON object per line."""
        return self.root / "audit.jsonl"

    def log(self, component: str) -> Path:
        """A component's log."""
        return self.root / f"{component}.log"


def health_url(component: str, layout: Layout) -> str:
    """The address that returns 200 once the component works."""
    return HEALTH[component].format(port=layout.ports[component])


def arguments(component: str, layout: Layout) -> list[str]:
    """The component's arguments."""
    return {
        "etcd": _etcd,
        "kube-apiserver": _apiserver,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
        "kubelet": _kubelet,
    }[component](layout)


def _etcd(layout: Layout) -> list[str]:
    client, peer = (f"http://127.0.0.1:{layout.ports[name]}" for name in ("etcd", "etcd-peer"))
    return [
        f"--name={layout.name}",
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={layout.name}={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(layout: Layout) -> list[str]:
    key = layout.service_account_key
    # Without kubelets, no component would remove the taint that this plugin puts on new nodes.
    without_kubelets = (
        [] if layout.parts.kwok or layout.parts.kubelet else ["--disable-admission-plugins=TaintNodesByCondition"]
    )
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.ports['etcd']}",
        f"--etcd-prefix=/registry-{layout.name}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={layout.ports['kube-apiserver']}",
        f"--cert-dir={layout.ca_file.parent}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        # Otherwise it keeps trying to publish 127.0.0.1 as its endpoint, which validation refuses.
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        "--enable-priority-and-fairness=false",
        "--profiling=false",
        *without_kubelets,
        *_audit(layout),
        *_towards_kubelet(layout),
    ]


def _towards_kubelet(layout: Layout) -> list[str]:
    if not layout.parts.kubelet:
        return []
    return [
        f"--kubelet-certificate-authority={layout.kubelet_certificate}",
        f"--kubelet-client-certificate={layout.kubelet_certificate}",
        f"--kubelet-client-key={layout.kubelet_key}",
    ]


AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: RequestResponse
    verbs: [create, update, patch, delete, deletecollection]
    resources:
      - {group: batch, resources: [jobs, jobs/status]}
      - {group: "", resources: [pods, pods/status]}
  - level: None
"""


def _audit(layout: Layout) -> list[str]:
    if not layout.parts.audit:
        return []
    policy = layout.root / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    # Never rotated: the oracle reads the whole record, and half an hour of a campaign writes more than the default of 100
    # MB.
    log = [f"--audit-log-path={layout.audit_log}", "--audit-log-mode=blocking", "--audit-log-maxsize=100000"]
    return [f"--audit-policy-file={policy}", *log]


def _as_client(component: str, layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[component]}",
        f"--cert-dir={layout.certificate(component).parent}",
        "--leader-elect=false",
        *(["--kube-api-qps=500", "--kube-api-burst=1000"] if layout.parts.fast else []),
    ]


def _controller_manager(layout: Layout) -> list[str]:
    controllers = CONTROLLERS + (NODE_CONTROLLERS if layout.parts.kwok or layout.parts.kubelet else ())
    beside = KUBELET_CONTROLLERS if layout.parts.kubelet else ()
    return [
        *_as_client("kube-controller-manager", layout),
        f"--service-account-private-key-file={layout.service_account_key}",
        "--use-service-account-credentials=false",
        f"--controllers={','.join(controllers + beside)}",
        *([f"--root-ca-file={layout.ca_file}"] if beside else []),
    ]


def _scheduler(layout: Layout) -> list[str]:
    return _as_client("kube-scheduler", layout)


def _kwok(layout: Layout) -> list[str]:
    others = f"--manage-nodes-with-label-selector={RUNS_LABEL}!=true"
    return [
        f"--kubeconfig={layout.kubeconfig}",
        others if layout.parts.kubelet else "--manage-all-nodes=true",
        f"--config={STAGES}",
        "--cidr=10.244.0.1/16",
        "--node-ip=127.0.0.1",
        f"--server-address=127.0.0.1:{layout.ports['kwok']}",
        "--node-lease-duration-seconds=40",
    ]


def _kubelet(layout: Layout) -> list[str]:
    isolated = ["-I", "-S", str(NAMESPACES), "enter", str(layout.kubelet_folder)]
    return [
        *isolated,
        *(sys.executable, "-m", "devtools.localfleet.kubelet"),
        f"--kubeconfig={layout.kubeconfig}",
        f"--root={layout.kubelet_folder}",
        f"--claims={layout.claims}",
        f"--certificate={layout.kubelet_certificate}",
        f"--key={layout.kubelet_key}",
        f"--port={layout.ports['kubelet']}",
    ]
