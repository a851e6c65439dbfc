"""A kubelet for tests: it runs the commands of pods as processes of this host and reports their true status.

KWOK simulates the other nodes of the local fleet. The kubelet adopts each Node with the label `RUNS_LABEL` (a node group
with `runs: true` in a fleet file), and KWOK leaves these nodes and their pods alone. One process serves all such nodes of a
control plane. It needs root: each container has its own namespaces for mounts, processes, the host's name and IPC.

    namespaces   what runs with the kernel: the kubelet's own namespaces, and the inside of a container until its command
    api          calls to the API server; follow() is a list and a watch that survives all that ends a watch
    nodes        heartbeats of the adopted nodes
    service      the process: follows nodes, pods and Services, and gives each pod its life
    pods         one pod from its binding to the deletion of its object
    containers   one container with its restarts, probes and hooks
    processes    starts, signals and measures a container's processes
    reports      writes a pod's status, and deletes its object at the end
    images       what stands for a container's image
    serving      gives logs to the API server
    status       the pod's status from the states of its containers
    environment  variables and $(VAR)
    volumes      folders and files that are mounted into containers
    claims       provisions PersistentVolumeClaims as folders
    names        addresses of pods and their hosts files
    probes       exec, HTTP and TCP checks
    logs         what containers write, kept and served
"""

RUNS_LABEL = "sim.switchyard.dev/runs"
